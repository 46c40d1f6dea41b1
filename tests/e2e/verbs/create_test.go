//go:build e2e

package verbs

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("virtctl create vm", func() {
	It("prints a VM that boots, which starts paused and is stopped by force while it does not listen", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		const grace = 4 * suite.BoundEnd // in which a guest that hears nothing goes on
		manifest := virtctl(ctx, ns, "create", "vm", "--name", "made", "--run-strategy", "Halted", "--memory", "128Mi", "--volume-containerdisk", "src:"+suite.TinyImage(),
			"--termination-grace-period", fmt.Sprint(int(grace.Seconds())))
		Expect(suite.World.ApplyYAML(ctx, []byte(manifest), ns)).To(Succeed())
		suite.VMStatus(ctx, ns, "made", virtv1.VirtualMachineStatusStopped)

		By("starting it paused")
		Expect(virtctl(ctx, ns, "start", "made", "--paused", "--dry-run")).To(ContainSubstring("Dry Run execution"))
		suite.VMStatus(ctx, ns, "made", virtv1.VirtualMachineStatusStopped)
		virtctl(ctx, ns, "start", "made", "--paused")
		suite.VMStatus(ctx, ns, "made", virtv1.VirtualMachineStatusPaused)
		virtctl(ctx, ns, "unpause", "vm", "made")
		vmi := suite.RunningVMI(ctx, ns, "made")

		By("stopping it by force, though it hears nothing of the power button")
		suite.Shell(ctx, vmi, "rm -r /etc/acpi/PWRF")
		virtctl(ctx, ns, "stop", "made", "--force", "--grace-period=0")
		Expect(suite.World.Gone(ctx, GinkgoWriter, vmi, grace/2)).To(Succeed())
		suite.VMStatus(ctx, ns, "made", virtv1.VirtualMachineStatusStopped)
	}, SpecTimeout(25*time.Minute))
})

var _ = Describe("virtctl guestfs", func() {
	It("looks into a claim in a pod that is gone afterwards, and into none that is not there", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "disk", "64Mi"))
		suite.DataVolume(ctx, ns, "disk", cdiv1.Succeeded)
		session := command(ctx, ns, "guestfs", "disk", "--kvm=false")
		session.Stdin, session.Stderr = strings.NewReader("set -e\ncd /disk\nvirt-filesystems --all --add disk.img\n"), GinkgoWriter
		out, err := session.Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(out)).To(ContainSubstring("/dev/sda"))
		Expect(refused(ctx, ns, "guestfs", "none")).To(ContainSubstring("the PVC none doesn't exist"))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "libguestfs-tools-disk"}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, pod, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(20*time.Minute))
})
