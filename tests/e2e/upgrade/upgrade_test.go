//go:build e2e_upgrade

// Package upgrade tests that a VM of a former build of Slipway runs on under this one: its launcher
// stays the former build's until the VM is restarted. It builds and installs the former build, so it
// has a target of its own, `make e2e-upgrade`.
package upgrade

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// former is the commit whose build is upgraded from. The launchers of the default speak version 1
// of the protocol: they know nothing of pause, consoles and statistics.
var former = commit()

func commit() string {
	if from := os.Getenv("FROM"); from != "" {
		return from
	}
	return "924a00dce872f48b30ab7ca7ff58aedbf5fe18bc"
}

func TestUpgrade(t *testing.T) { suite.RunOn(t, "upgrade", installFormer) }

// installFormer puts the former build onto the cluster, in place of what is there.
func installFormer(ctx context.Context, world *env.Cluster, out io.Writer) error {
	folder, err := os.MkdirTemp("", "slipway-former-")
	if err != nil {
		return fmt.Errorf("making a folder for the former build: %w", err)
	}
	root := filepath.Join(folder, "checkout")
	DeferCleanup(func(ctx context.Context) {
		Expect(run(ctx, world.Root, out, "git", "worktree", "remove", "--force", root)).To(Succeed())
		Expect(os.RemoveAll(folder)).To(Succeed())
	})
	if err := run(ctx, world.Root, out, "git", "worktree", "add", "--detach", root, former); err != nil {
		return fmt.Errorf("checking out commit %s, which must be in this checkout's history: %w", former, err)
	}
	if err := run(ctx, root, out, "go", "run", "./hack/images", "build"); err != nil {
		return fmt.Errorf("building the images of commit %s: %w", former, err)
	}
	list := exec.CommandContext(ctx, "go", "run", "./hack/images", "list", "--archives")
	list.Dir = root
	archives, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing the images of commit %s: %w", former, err)
	}
	load := append([]string{"run", "-C", "hack/cluster", ".", "load"}, strings.Fields(string(archives))...)
	if err := run(ctx, world.Root, out, "go", load...); err != nil {
		return fmt.Errorf("loading the images of commit %s: %w", former, err)
	}
	build := *world
	build.Root = root
	return build.Install(ctx, out)
}

// run runs a program in dir.
func run(ctx context.Context, dir string, out io.Writer, program string, args ...string) error {
	fmt.Fprintf(out, "running %s %s\n", program, strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s %s: %w", program, strings.Join(args, " "), err)
	}
	return nil
}

var _ = Describe("a VM of a former build", func() {
	It("runs on under this one, is told what its launcher lacks, and has it after a restart", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "data", "64Mi"))
		suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
		suite.Create(ctx, fixture.VM(ns, "elder", fixture.ContainerDisk(suite.TinyImage()), fixture.Claim("data", "data")),
			fixture.VM(ns, "idle", fixture.ContainerDisk(suite.TinyImage())))
		before := suite.RunningVMI(ctx, ns, "elder")
		idle := suite.RunningVMI(ctx, ns, "idle")
		boot := suite.Shell(ctx, before, "cat /proc/sys/kernel/random/boot_id")
		suite.Shell(ctx, before, "set -e; mkfs.ext2 /dev/vdb; mkdir -p /mnt; mount /dev/vdb /mnt; echo kept > /mnt/file; sync")
		launcher := launcherOf(ctx, before)

		By("upgrading everything but the launcher")
		Expect(suite.World.Install(ctx, GinkgoWriter)).To(Succeed())
		after := suite.RunningVMI(ctx, ns, "elder")
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Status.PhaseTransitionTimestamps).To(Equal(before.Status.PhaseTransitionTimestamps))
		same := launcherOf(ctx, after)
		Expect(same.UID).To(Equal(launcher.UID))
		outdated(ctx, after, true)
		Expect(suite.Shell(ctx, after, "cat /proc/sys/kernel/random/boot_id")).To(Equal(boot))
		Expect(suite.Shell(ctx, after, "echo on >> /mnt/file; sync; cat /mnt/file")).To(Equal("kept\non"))

		By("asking for what its launcher may not know")
		paused := answer(ask(ctx, ns, "pause"))
		AddReportEntry("the answer to pause", paused)
		if os.Getenv("FROM") == "" {
			Expect(paused).To(ContainSubstring("restart the VM"))
		}
		if paused == "done" {
			Eventually(ctx, func() string { return answer(ask(ctx, ns, "unpause")) }, suite.BoundEnd, time.Second).Should(Equal("done"))
		}

		By("ending its guest gracefully")
		vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "elder"}}
		patch := func(strategy string) {
			raw := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runStrategy":"`+strategy+`"}}`))
			Expect(suite.World.Client.Patch(ctx, vm, raw)).To(Succeed())
		}
		patch("Halted")
		suite.VMStatus(ctx, ns, "elder", virtv1.VirtualMachineStatusStopped)

		By("starting it with this build's launcher")
		patch("Always")
		fresh := suite.RunningVMI(ctx, ns, "elder")
		Expect(launcherOf(ctx, fresh).Spec.Containers[0].Image).NotTo(Equal(launcher.Spec.Containers[0].Image))
		outdated(ctx, fresh, false)
		Expect(answer(ask(ctx, ns, "pause"))).To(Equal("done"))
		Eventually(ctx, func() string { return answer(ask(ctx, ns, "unpause")) }, suite.BoundEnd, time.Second).Should(Equal("done"), "once its status says that it is paused")
		Expect(suite.Shell(ctx, fresh, "mkdir -p /mnt; mount /dev/vdb /mnt; cat /mnt/file; umount /mnt")).To(Equal("kept\non"))

		By("having those with a former launcher restarted")
		left := suite.RunningVMI(ctx, ns, "idle")
		Expect(left.UID).To(Equal(idle.UID), "nobody has asked for that yet")
		outdated(ctx, left, true)
		hco := &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.HyperConvergedName}}
		evict := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"virtualization":{"workloadUpdateStrategy":{"workloadUpdateMethods":["Evict"]}}}}`))
		Expect(suite.World.Client.Patch(ctx, hco, evict)).To(Succeed())
		err := suite.World.Await(ctx, GinkgoWriter, left.DeepCopy(), suite.BoundBoot, func(obj client.Object) (string, bool, error) {
			now := obj.(*virtv1.VirtualMachineInstance)
			return fmt.Sprintf("%.8s %s", now.UID, now.Status.Phase), now.UID != left.UID && now.Status.Phase == virtv1.Running, nil
		})
		Expect(err).NotTo(HaveOccurred())
		outdated(ctx, suite.RunningVMI(ctx, ns, "idle"), false)
		Expect(suite.RunningVMI(ctx, ns, "elder").UID).To(Equal(fresh.UID), "it had this build's launcher")
	}, SpecTimeout(30*time.Minute))
})

// launcherOf is the pod that vmi runs in.
func launcherOf(ctx context.Context, vmi *virtv1.VirtualMachineInstance) *corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{virtv1.CreatedByLabel: string(vmi.UID)})).To(Succeed())
	Expect(pods.Items).To(HaveLen(1))
	return &pods.Items[0]
}

// outdated waits until vmi's label says whether a restart would bring another launcher.
func outdated(ctx context.Context, vmi *virtv1.VirtualMachineInstance, want bool) {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, vmi, suite.BoundEnd, func(obj client.Object) (string, bool, error) {
		_, labelled := obj.GetLabels()[virtv1.OutdatedLauncherImageLabel]
		return fmt.Sprintf("outdated: %t", labelled), labelled == want, nil
	})
	Expect(err).NotTo(HaveOccurred())
}

// ask asks virt-api for a verb of instance elder.
func ask(ctx context.Context, namespace, verb string) error {
	path := "/apis/subresources.kubevirt.io/v1/namespaces/" + namespace + "/virtualmachineinstances/elder/" + verb
	if err := suite.World.Kube.CoreV1().RESTClient().Put().AbsPath(path).Do(ctx).Error(); err != nil {
		return fmt.Errorf("asking for %s: %w", verb, err)
	}
	return nil
}

func answer(err error) string {
	if err != nil {
		return err.Error()
	}
	return "done"
}
