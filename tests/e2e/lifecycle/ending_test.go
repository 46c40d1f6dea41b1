//go:build e2e

package lifecycle

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a VM that does its work and ends", func() {
	It("starts again after a failure and not after a power-off, by RerunOnFailure", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.VM(ns, "worker", fixture.Strategy(virtv1.RunStrategyRerunOnFailure), fixture.ContainerDisk(suite.TinyImage())))
		first := suite.RunningVMI(ctx, ns, "worker")

		By("killing QEMU")
		killQEMU(ctx, first)
		second := nextVMI(ctx, first)

		By("powering the guest off from inside")
		suite.PowerOff(ctx, second)
		expectEnd(ctx, second, virtv1.Succeeded)
		suite.VMStatus(ctx, ns, "worker", virtv1.VirtualMachineStatusStopped)
		expectStays(ctx, second)
	}, SpecTimeout(20*time.Minute))

	It("shows how it ended, by Once", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.VM(ns, "once", fixture.Strategy(virtv1.RunStrategyOnce), fixture.ContainerDisk(suite.TinyImage())))
		vmi := suite.RunningVMI(ctx, ns, "once")
		killQEMU(ctx, vmi)
		expectEnd(ctx, vmi, virtv1.Failed)
		suite.VMStatus(ctx, ns, "once", virtv1.VirtualMachineStatusStopped)
		expectStays(ctx, vmi)
	}, SpecTimeout(15*time.Minute))
})

// expectEnd waits until the instance has ended so.
func expectEnd(ctx context.Context, vmi *virtv1.VirtualMachineInstance, end virtv1.VirtualMachineInstancePhase) {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, vmi, suite.BoundEnd, func(obj client.Object) (string, bool, error) {
		phase := obj.(*virtv1.VirtualMachineInstance).Status.Phase
		return string(phase), phase == end, nil
	})
	Expect(err).NotTo(HaveOccurred())
}

// expectStays makes sure that no other instance takes the place of one that ended, for longer
// than the first back-off.
func expectStays(ctx context.Context, ended *virtv1.VirtualMachineInstance) {
	GinkgoHelper()
	Consistently(func(ctx context.Context) (string, error) {
		vmi := &virtv1.VirtualMachineInstance{}
		err := suite.World.Client.Get(ctx, client.ObjectKeyFromObject(ended), vmi)
		return string(vmi.UID), err
	}).WithContext(ctx).WithTimeout(15*time.Second).WithPolling(time.Second).Should(Equal(string(ended.UID)), "VMI %s stays", ended.Name)
}
