//go:build e2e

// Package verbs tests the subresources of virtual machines on real guests: by virtctl, and by the
// client that KubeVirt publishes.
package verbs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestVerbs(t *testing.T) { suite.Run(t, "verbs", served, build) }

// boundVerb is the longest time for what a verb brings about.
const boundVerb = 5 * time.Minute

// program is virtctl, built for this run.
var program string

// served waits until the API server hands the subresources on.
func served(ctx context.Context) {
	service := &unstructured.Unstructured{}
	service.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	Eventually(ctx, func(g Gomega) {
		g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Name: "v1.subresources.kubevirt.io"}, service)).To(Succeed())
		conditions, _, err := unstructured.NestedSlice(service.Object, "status", "conditions")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Available"), HaveKeyWithValue("status", "True"))))
	}, boundVerb, time.Second).Should(Succeed())
}

func build(ctx context.Context) {
	dir, err := os.MkdirTemp("", "slipway-virtctl-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	program = filepath.Join(dir, "virtctl")
	compile := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/virtctl")
	compile.Dir, compile.Stdout, compile.Stderr = suite.World.Root, GinkgoWriter, GinkgoWriter
	Expect(compile.Run()).To(Succeed())
}

// command is a call of virtctl on the namespace.
func command(ctx context.Context, ns string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, append([]string{"--namespace", ns}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+suite.World.Kubeconfig)
	return cmd
}

// virtctl runs a verb that must succeed, and returns what it printed.
func virtctl(ctx context.Context, ns string, args ...string) string {
	GinkgoHelper()
	cmd := command(ctx, ns, args...)
	var said bytes.Buffer
	cmd.Stderr = io.MultiWriter(GinkgoWriter, &said)
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred(), "virtctl %v printed %s and said %s", args, out, &said)
	return string(out)
}

// refused runs a verb that must fail, and returns what it said.
func refused(ctx context.Context, ns string, args ...string) string {
	GinkgoHelper()
	out, err := command(ctx, ns, args...).CombinedOutput()
	Expect(err).To(HaveOccurred(), "virtctl %v printed %s", args, out)
	return string(out)
}

var _ = Describe("virtctl", func() {
	It("starts a VM by hand, shows its guest, pauses, restarts and stops it", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "hand", fixture.ContainerDisk(suite.TinyImage()), fixture.Strategy(virtv1.RunStrategyManual))
		vm.Spec.Template.Spec.Domain.Devices.ClientPassthrough = &virtv1.ClientPassthroughDevices{}
		passwords(vm)
		suite.Create(ctx, words(ns), fixture.DataVolume(ns, "extra", "64Mi"), vm, viewer(ns))
		key, publicKey := newKey()
		suite.VMStatus(ctx, ns, "hand", virtv1.VirtualMachineStatusStopped)
		Expect(virtctl(ctx, ns, "credentials", "add-ssh-key", "--user", "root", "--value", publicKey, "hand")).To(ContainSubstring("Successfully added the key"))
		Expect(virtctl(ctx, ns, "start", "hand")).To(ContainSubstring("VM hand was scheduled to start"))
		vmi := suite.RunningVMI(ctx, ns, "hand")

		By("asking the guest's agent")
		var info virtv1.VirtualMachineInstanceGuestAgentInfo
		Expect(json.Unmarshal([]byte(virtctl(ctx, ns, "guestosinfo", "hand")), &info)).To(Succeed())
		Expect(info.OS.KernelRelease).To(Equal(suite.Shell(ctx, vmi, "uname -r")))
		Expect(virtctl(ctx, ns, "fslist", "hand")).To(ContainSubstring("items"))
		Expect(virtctl(ctx, ns, "userlist", "hand")).To(ContainSubstring("items"))

		By("finding the key that it was given")
		Eventually(ctx, func() string { return suite.Shell(ctx, vmi, "cat /root/.ssh/authorized_keys || true") }, boundVerb, time.Second).Should(ContainSubstring(publicKey))
		Expect(virtctl(ctx, ns, "credentials", "add-ssh-key", "--user", "root", "--value", publicKey, "hand")).To(ContainSubstring("already contains this SSH key"))

		By("asking as somebody who may only look")
		Expect(virtctl(ctx, ns, "--as", "viewer", "guestosinfo", "hand")).To(ContainSubstring("kernelRelease"))
		Expect(refused(ctx, ns, "--as", "viewer", "pause", "vmi", "hand")).To(ContainSubstring("forbidden"))
		Expect(refused(ctx, ns, "--as", "viewer", "console", "hand")).To(ContainSubstring("forbidden"))

		By("taking a picture of its screen")
		picture := filepath.Join(GinkgoT().TempDir(), "screen.png")
		virtctl(ctx, ns, "vnc", "screenshot", "hand", "--file", picture)
		Expect(os.ReadFile(picture)).To(HavePrefix("\x89PNG"))

		By("plugging in a USB device, which greets")
		Expect(greeting(ctx, ns, "hand")).To(ContainSubstring("qemu usb-redir guest"))

		By("asking what it is made of")
		graph := virtctl(ctx, ns, "--as", "viewer", "objectgraph", "hand", "--selector", "kubevirt.io/dependency-type=compute", "--output", "yaml")
		Expect(graph).To(And(ContainSubstring("kind: VirtualMachineInstance"), ContainSubstring("name: virt-launcher-hand-")))

		useGuest(ctx, vmi, key, publicKey)

		By("pausing it")
		Expect(virtctl(ctx, ns, "pause", "vm", "hand")).To(ContainSubstring("hand was scheduled to pause"))
		suite.VMStatus(ctx, ns, "hand", virtv1.VirtualMachineStatusPaused)
		Expect(refused(ctx, ns, "pause", "vm", "hand")).To(ContainSubstring("VMI is already paused"))
		virtctl(ctx, ns, "unpause", "vm", "hand")
		suite.VMStatus(ctx, ns, "hand", virtv1.VirtualMachineStatusRunning)

		By("resetting it")
		before := suite.Shell(ctx, vmi, "cat /proc/sys/kernel/random/boot_id")
		virtctl(ctx, ns, "reset", "hand")
		Eventually(ctx, func() (string, error) {
			return env.Shell(ctx, vmi.Status.Interfaces[0].IP, "cat /proc/sys/kernel/random/boot_id", suite.BoundBoot)
		}, suite.BoundBoot, time.Second).ShouldNot(Equal(before))

		By("restarting it")
		Expect(virtctl(ctx, ns, "restart", "hand")).To(ContainSubstring("hand was scheduled to restart"))
		Expect(suite.World.Await(ctx, GinkgoWriter, vmi.DeepCopy(), 2*suite.BoundBoot, func(obj client.Object) (string, bool, error) {
			now := obj.(*virtv1.VirtualMachineInstance)
			return string(now.UID[:8]) + " " + string(now.Status.Phase), now.UID != vmi.UID && now.Status.Phase == virtv1.Running, nil
		})).To(Succeed())

		By("stopping it")
		Expect(virtctl(ctx, ns, "stop", "hand")).To(ContainSubstring("hand was scheduled to stop"))
		suite.VMStatus(ctx, ns, "hand", virtv1.VirtualMachineStatusStopped)
		Expect(refused(ctx, ns, "stop", "hand")).To(ContainSubstring("VM is not running"))
	}, SpecTimeout(40*time.Minute))

	It("keeps a console and a screen over a restart of virt-handler", Label("alone"), func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.VM(ns, "talk", fixture.ContainerDisk(suite.TinyImage())))
		suite.RunningVMI(ctx, ns, "talk")

		By("reading what the guest's console asks")
		session, stop := context.WithCancel(ctx)
		defer stop()
		console := command(session, ns, "console", "talk")
		typed, err := console.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		said, told := gbytes.NewBuffer(), gbytes.NewBuffer()
		console.Stdout, console.Stderr = said, told
		Expect(console.Start()).To(Succeed())
		prompt := func(g Gomega) {
			_, err := typed.Write([]byte("\r"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Eventually(said, 5*time.Second).Should(gbytes.Say("login:"))
		}
		Eventually(ctx, prompt, boundVerb, time.Second).Should(Succeed())

		By("reading what its screen greets with")
		shown := openScreen(session, ns, "talk")
		first := shown.greeted(ctx)

		By("restarting virt-handler")
		Expect(suite.World.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("kubevirt-hyperconverged"), client.MatchingLabels{virtv1.AppLabel: "virt-handler"})).To(Succeed())
		Eventually(ctx, told, boundVerb).Should(gbytes.Say("Connecting again..."))
		Eventually(ctx, told, boundVerb).Should(gbytes.Say("Successfully connected to talk console"))
		Eventually(ctx, prompt, boundVerb, time.Second).Should(Succeed())
		Eventually(ctx, shown.told, boundVerb).Should(gbytes.Say("Connecting again..."))
		Eventually(ctx, shown.told, boundVerb).Should(gbytes.Say("Successfully connected to the screen of talk"))
		Expect(first.SetReadDeadline(time.Now().Add(boundVerb))).To(Succeed())
		_, err = first.Read(make([]byte, 1))
		Expect(err).To(MatchError(io.EOF), "the first viewer was sent away")
		second := shown.greeted(ctx)
		Expect(second.Close()).To(Succeed())
		Expect(shown.command.Wait()).To(Succeed(), "it ends with its viewer")
		stop()
		_ = console.Wait() // it was ended
	}, SpecTimeout(30*time.Minute))
})

// greeting is what the guest says first to a USB device that is redirected to it.
func greeting(ctx context.Context, ns, name string) string {
	GinkgoHelper()
	redirection := command(ctx, ns, "usbredir", name, "--no-launch")
	redirection.Stderr = GinkgoWriter
	printed, err := redirection.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(redirection.Start()).To(Succeed())
	line, err := bufio.NewReader(printed).ReadString('\n')
	Expect(err).NotTo(HaveOccurred(), "the program printed %q", line)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(strings.TrimSpace(line), "User can connect usbredir client at: "))
	Expect(err).NotTo(HaveOccurred())
	Expect(conn.SetReadDeadline(time.Now().Add(boundVerb))).To(Succeed())
	var header struct{ Kind, Length, Number uint32 }
	Expect(binary.Read(conn, binary.LittleEndian, &header)).To(Succeed())
	Expect(header.Kind).To(BeZero(), "the first message is the greeting")
	Expect(header.Length).To(BeNumerically("<", 1<<10))
	hello := make([]byte, header.Length) // to its end: a connection that is closed with something unread breaks
	_, err = io.ReadFull(conn, hello)
	Expect(err).NotTo(HaveOccurred())
	Expect(conn.Close()).To(Succeed())
	Expect(redirection.Wait()).To(Succeed())
	return string(hello)
}

// viewer is a user with the role to look at virtual machines.
func viewer(ns string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "viewer"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "viewer"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubevirt.io:view"},
	}
}

var _ = Describe("KubeVirt's own client", func() {
	It("starts, watches, reaches and stops a VM", func(ctx context.Context) {
		test := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-tags=e2e", "-timeout=40m", "./...")
		test.Dir = filepath.Join(suite.World.Root, "tests/upstream")
		test.Env = append(os.Environ(), "KUBECONFIG="+suite.World.Kubeconfig, "SLIPWAY_TINY_IMAGE="+suite.TinyImage(), "SLIPWAY_REQUIRE=1")
		test.Stdout, test.Stderr = GinkgoWriter, GinkgoWriter
		Expect(test.Run()).To(Succeed())
	}, SpecTimeout(55*time.Minute))
})
