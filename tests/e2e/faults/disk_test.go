//go:build e2e

package faults

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// aloneInWrite is the byte of an image that QEMU locks when it lets nobody else write to it.
const aloneInWrite = 201

var _ = Describe("a claim that two VMs name", func() {
	It("has one QEMU, and the other VM waits until that has really ended", func(ctx context.Context) {
		if suite.World.Existing {
			Skip("the node of an existing cluster is out of reach")
		}
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "shop", "64Mi"))
		suite.DataVolume(ctx, ns, "shop", cdiv1.Succeeded)
		suite.Create(ctx, fixture.VM(ns, "first", fixture.Strategy(virtv1.RunStrategyOnce), fixture.Claim("data", "shop")))
		first := expectVMI(ctx, ns, "first", func(vmi *virtv1.VirtualMachineInstance) bool { return vmi.Status.Phase == virtv1.Running })
		suite.Create(ctx, fixture.VM(ns, "second", fixture.Claim("data", "shop")))
		second := expectVMI(ctx, ns, "second", says(virtv1.VirtualMachineInstanceSynchronized, "PVCInUse", "PVC shop is in use by VirtualMachineInstance first"))
		Expect(second.Status.ActivePods).To(BeEmpty())

		By("having a QEMU outlive the pod that is deleted by force")
		disk, err := os.OpenFile(diskFile(ctx, ns, "shop"), os.O_RDWR, 0)
		Expect(err).NotTo(HaveOccurred())
		defer disk.Close()
		lock := unix.Flock_t{Type: unix.F_RDLCK, Start: aloneInWrite, Len: 1}
		Expect(unix.FcntlFlock(disk.Fd(), unix.F_OFD_SETLK, &lock)).To(Succeed())
		var pods corev1.PodList
		Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{"vm.kubevirt.io/name": "first"})).To(Succeed())
		Expect(pods.Items).To(HaveLen(1))
		killed := time.Now()
		Expect(suite.World.Client.Delete(ctx, &pods.Items[0], &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})).To(Succeed())
		expectFailed(ctx, first, killed)
		waiting := expectVMI(ctx, ns, "second", says(virtv1.VirtualMachineInstanceReady, "DiskInUse", "volume data (claim shop) is in use"))
		Expect(waiting.Status.Phase).To(Equal(virtv1.Scheduled))

		By("ending that QEMU")
		Expect(disk.Close()).To(Succeed())
		found := expectVMI(ctx, ns, "second", func(vmi *virtv1.VirtualMachineInstance) bool { return vmi.Status.Phase == virtv1.Running })
		Expect(found.UID).To(Equal(second.UID), "the start waited, and did not fail")
		Eventually(func(g Gomega) {
			var events corev1.EventList
			g.Expect(suite.World.Client.List(ctx, &events, client.InNamespace(ns))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(HaveField("Reason", "DiskInUse")))
		}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
	}, SpecTimeout(20*time.Minute))
})

// expectVMI waits until the instance is as wanted.
func expectVMI(ctx context.Context, namespace, name string, want func(*virtv1.VirtualMachineInstance) bool) *virtv1.VirtualMachineInstance {
	GinkgoHelper()
	found := &virtv1.VirtualMachineInstance{}
	found.Namespace, found.Name = namespace, name
	err := suite.World.Await(ctx, GinkgoWriter, found, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		found = obj.(*virtv1.VirtualMachineInstance)
		words := string(found.Status.Phase)
		for _, c := range found.Status.Conditions {
			if c.Status == corev1.ConditionFalse {
				words += fmt.Sprintf("; %s: %s: %s", c.Type, c.Reason, c.Message)
			}
		}
		return words, want(found), nil
	})
	Expect(err).NotTo(HaveOccurred())
	return found
}

// says holds for an instance with a condition that is false for a reason, and explains it so.
func says(kind virtv1.VirtualMachineInstanceConditionType, reason, message string) func(*virtv1.VirtualMachineInstance) bool {
	return func(vmi *virtv1.VirtualMachineInstance) bool {
		for _, c := range vmi.Status.Conditions {
			if c.Type == kind && c.Status == corev1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, message) {
				return true
			}
		}
		return false
	}
}
