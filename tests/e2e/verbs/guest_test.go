//go:build e2e

package verbs

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
)

// boundSecret is how long the kubelet may take to bring a changed Secret into a pod.
const boundSecret = 8 * time.Minute

const bootID = "cat /proc/sys/kernel/random/boot_id"

// receive is an scp for the guest, which has none: it takes one file in the protocol that "scp -O" speaks. It reads no byte too many,
// as head does there.
const receive = `cat > /usr/bin/scp <<'END'
#!/bin/sh
for path; do :; done
printf '\0'; read -r mode size name; printf '\0'
dd bs=1 count="$size" of="$path" 2> /dev/null; dd bs=1 count=1 of=/dev/null 2> /dev/null; printf '\0'
END
chmod 755 /usr/bin/scp`

// ops gives the guest a user without a password.
const ops = `echo 'ops:x:1000:1000::/run:/bin/sh' >> /etc/passwd; echo 'ops:!:20000:0:99999:7:::' >> /etc/shadow`

// newKey makes an SSH key, and returns the file of the private one and the line of the public one.
func newKey() (file, public string) {
	GinkgoHelper()
	open, secret, err := ed25519.GenerateKey(rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	block, err := ssh.MarshalPrivateKey(secret, "verbs@example")
	Expect(err).NotTo(HaveOccurred())
	file = filepath.Join(GinkgoT().TempDir(), "key")
	Expect(os.WriteFile(file, pem.EncodeToMemory(block), 0o600)).To(Succeed())
	line, err := ssh.NewPublicKey(open)
	Expect(err).NotTo(HaveOccurred())
	return file, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(line))) + " verbs@example"
}

// words are the passwords of the guest's users: root's, as it is.
func words(ns string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "words"}, StringData: map[string]string{"root": "slipway"}}
}

// passwords has the VM's agent set them.
func passwords(vm *virtv1.VirtualMachine) {
	vm.Spec.Template.Spec.AccessCredentials = append(vm.Spec.Template.Spec.AccessCredentials, virtv1.AccessCredential{UserPassword: &virtv1.UserPasswordAccessCredential{
		Source: virtv1.UserPasswordAccessCredentialSource{Secret: &virtv1.AccessCredentialSecretSource{SecretName: "words"}},
		PropagationMethod: virtv1.UserPasswordAccessCredentialPropagationMethod{
			QemuGuestAgent: &virtv1.QemuGuestAgentUserPasswordAccessCredentialPropagation{},
		},
	}})
}

// useGuest does with a running guest what needs no start of it: it is one spec's, so that no other guest has to boot.
func useGuest(ctx context.Context, vmi *virtv1.VirtualMachineInstance, key, publicKey string) {
	GinkgoHelper()
	ns, name := vmi.Namespace, vmi.Name
	reachGuest(ctx, vmi, key)
	asksOnly(ctx, vmi)

	By("giving it a disk, and taking it away")
	suite.DataVolume(ctx, ns, "extra", cdiv1.Succeeded)
	disks := suite.Shell(ctx, vmi, "ls /sys/block")
	Expect(virtctl(ctx, ns, "addvolume", name, "--volume-name=extra")).To(ContainSubstring("Successfully submitted add volume request to VM hand for volume extra"))
	volume(ctx, vmi, "extra", virtv1.VolumeReady)
	Expect(refused(ctx, ns, "guestfs", "extra")).To(ContainSubstring("PVC extra is used by another pod"))
	Eventually(ctx, func() string { return suite.Shell(ctx, vmi, "ls /sys/block") }, boundVerb, time.Second).ShouldNot(Equal(disks))
	Expect(virtctl(ctx, ns, "removevolume", name, "--volume-name=extra")).To(ContainSubstring("Successfully submitted remove volume request"))
	volume(ctx, vmi, "extra", "")
	Eventually(ctx, func() string { return suite.Shell(ctx, vmi, "ls /sys/block") }, boundVerb, time.Second).Should(Equal(disks))

	By("giving a user of it a password, and taking the key away")
	suite.Shell(ctx, vmi, ops)
	Expect(refused(ctx, ns, "credentials", "set-password", "--user", "ops", "--password", "hush", name)).To(ContainSubstring("use --force"))
	Expect(virtctl(ctx, ns, "credentials", "set-password", "--user", "ops", "--password", "hush", "--force", name)).To(ContainSubstring("Successfully set password"))
	virtctl(ctx, ns, "credentials", "remove-ssh-key", "--user", "root", "--value", publicKey, name)
	Eventually(ctx, func(g Gomega) {
		g.Expect(suite.Shell(ctx, vmi, "grep ^ops: /etc/shadow")).To(HavePrefix("ops:$"))
		g.Expect(suite.Shell(ctx, vmi, "cat /root/.ssh/authorized_keys || true")).NotTo(ContainSubstring(publicKey))
	}, boundSecret, 2*time.Second).Should(Succeed())

	By("asking it to reboot")
	before := suite.Shell(ctx, vmi, bootID)
	Expect(virtctl(ctx, ns, "soft-reboot", name)).To(ContainSubstring("VMI hand was scheduled to soft-reboot"))
	Eventually(ctx, func() (string, error) {
		return env.Shell(ctx, vmi.Status.Interfaces[0].IP, bootID, suite.BoundBoot)
	}, suite.BoundBoot, time.Second).ShouldNot(Equal(before))
}

// reachGuest reaches the guest's SSH server in each way.
func reachGuest(ctx context.Context, vmi *virtv1.VirtualMachineInstance, key string) {
	GinkgoHelper()
	ns, target := vmi.Namespace, "root@vm/"+vmi.Name
	login := []string{"--identity-file", key, "--known-hosts", os.DevNull, "-t", "-o StrictHostKeyChecking=no"}

	By("logging in to it, and sending it a file")
	Expect(virtctl(ctx, ns, append([]string{"ssh", target, "--command", "uname -r"}, login...)...)).
		To(Equal(suite.Shell(ctx, vmi, "uname -r") + "\n"))
	suite.Shell(ctx, vmi, receive)
	sent := filepath.Join(GinkgoT().TempDir(), "sent")
	Expect(os.WriteFile(sent, []byte("a slipway is a ramp\n"), 0o600)).To(Succeed())
	virtctl(ctx, ns, append([]string{"scp", sent, target + ":/run/sent", "-t", "-O"}, login...)...)
	Expect(suite.Shell(ctx, vmi, "cat /run/sent")).To(Equal("a slipway is a ramp"))

	By("forwarding a port to it")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	port := free.Addr().(*net.TCPAddr).Port
	Expect(free.Close()).To(Succeed())
	session, stop := context.WithCancel(ctx)
	defer stop()
	forward := command(session, ns, "port-forward", "vm/"+vmi.Name, fmt.Sprintf("%d:22", port))
	forward.Stderr = GinkgoWriter
	Expect(forward.Start()).To(Succeed())
	Eventually(ctx, func() (string, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return "", err
		}
		defer conn.Close()
		if err := conn.SetReadDeadline(time.Now().Add(boundVerb)); err != nil {
			return "", err
		}
		return bufio.NewReader(conn).ReadString('\n')
	}, boundVerb, time.Second).Should(HavePrefix("SSH-2.0-"))
	stop()
	_ = forward.Wait() // it was ended
}

// asksOnly runs the verbs that change nothing: those that ask, and those that only try.
func asksOnly(ctx context.Context, vmi *virtv1.VirtualMachineInstance) {
	GinkgoHelper()
	ns, name := vmi.Namespace, vmi.Name
	By("asking what there is")
	Expect(virtctl(ctx, ns, "expand", "--vm", name)).To(And(ContainSubstring("kind: VirtualMachine"), ContainSubstring("name: "+name)))
	Expect(virtctl(ctx, ns, "version")).To(And(ContainSubstring("Client Version: "), MatchRegexp(`Server Version: version.Info\{GitVersion:"[^"]+"`)))
	Expect(virtctl(ctx, names.InstallNamespace, "permitted-devices")).To(ContainSubstring("Permitted Devices"))

	By("trying what would change it")
	for _, line := range []string{
		"stop " + name, "restart " + name, "restart " + name + " --force --grace-period=0", "pause vm " + name,
		"addvolume " + name + " --volume-name=extra", "addvolume " + name + " --volume-name=extra --persist",
	} {
		virtctl(ctx, ns, append(strings.Fields(line), "--dry-run")...)
	}
	for line, want := range map[string]string{
		"start " + name: "VM is already running", "unpause vm " + name: "is not paused", "rename vm " + name + " other": "renaming a running VM is not allowed",
	} {
		Expect(refused(ctx, ns, append(strings.Fields(line), "--dry-run")...)).To(ContainSubstring(want), line)
	}
	now := &virtv1.VirtualMachineInstance{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vmi), now)).To(Succeed())
	Expect(now.UID).To(Equal(vmi.UID))
	Expect(now.DeletionTimestamp).To(BeNil())
	Expect(now.Spec.Volumes).To(Equal(vmi.Spec.Volumes))
}

// volume waits until a volume of the VMI is in phase; "" waits until it is gone.
func volume(ctx context.Context, vmi *virtv1.VirtualMachineInstance, name string, phase virtv1.VolumePhase) {
	GinkgoHelper()
	Expect(suite.World.Await(ctx, GinkgoWriter, vmi.DeepCopy(), boundVerb, func(obj client.Object) (string, bool, error) {
		for _, status := range obj.(*virtv1.VirtualMachineInstance).Status.VolumeStatus {
			if status.Name == name {
				return name + " is " + string(status.Phase) + ": " + status.Message, status.Phase == phase, nil
			}
		}
		return name + " is not there", phase == "", nil
	})).To(Succeed())
}
