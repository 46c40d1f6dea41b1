//go:build e2e

package lifecycle

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	}, SpecTimeout(30*time.Minute))

	It("shows how it ended, by Once", suite.Thorough, func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.VM(ns, "once", fixture.Strategy(virtv1.RunStrategyOnce), fixture.ContainerDisk(suite.TinyImage())))
		vmi := suite.RunningVMI(ctx, ns, "once")
		killQEMU(ctx, vmi)
		expectEnd(ctx, vmi, virtv1.Failed)
		suite.VMStatus(ctx, ns, "once", virtv1.VirtualMachineStatusStopped)
		expectStays(ctx, vmi)
	}, SpecTimeout(25*time.Minute))
})

var _ = Describe("a VM whose guest crashes", func() {
	It("says why for as long as it waits to be started again", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "crash", fixture.ContainerDisk(suite.TinyImage()))
		suite.Create(ctx, vm)
		first := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "crash"}}
		Expect(suite.World.Await(ctx, GinkgoWriter, first, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
			phase := obj.(*virtv1.VirtualMachineInstance).Status.Phase
			return string(phase), phase == virtv1.Running, nil
		})).To(Succeed())
		last := first
		for told := false; !told; {
			Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(last), last)).To(Succeed())
			killQEMU(ctx, last)
			last, told = crashTold(ctx, vm, last)
		}
		nextVMI(ctx, last)
	}, SpecTimeout(25*time.Minute))

	It("is found again by the next VM of its name, where the VM is deleted and leaves it", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "left", fixture.ContainerDisk(suite.TinyImage()))
		again := vm.DeepCopy()
		suite.Create(ctx, vm)
		guest := suite.RunningVMI(ctx, ns, "left")
		boot := suite.Shell(ctx, guest, "cat /proc/sys/kernel/random/boot_id")
		Expect(suite.World.Client.Delete(ctx, vm, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())

		suite.Create(ctx, again)
		suite.VMStatus(ctx, ns, "left", virtv1.VirtualMachineStatusRunning)
		now := suite.RunningVMI(ctx, ns, "left")
		Expect(now.UID).To(Equal(guest.UID))
		Expect(metav1.IsControlledBy(now, again)).To(BeTrue())
		Expect(suite.Shell(ctx, now, "cat /proc/sys/kernel/random/boot_id")).To(Equal(boot), "the guest went on")

		patchStrategy(ctx, again, virtv1.RunStrategyHalted)
		suite.VMStatus(ctx, ns, "left", virtv1.VirtualMachineStatusStopped)
	}, SpecTimeout(25*time.Minute))
})

// crashTold waits until the VM says why it waits, and returns the instance that crashed. Where the next one runs before that, it
// returns that one: the first waits are of seconds, in which a busy node has not put away the one before, and a guest
// that ran for a minute before it was killed is started again at once.
func crashTold(ctx context.Context, vm *virtv1.VirtualMachine, crashed *virtv1.VirtualMachineInstance) (last *virtv1.VirtualMachineInstance, told bool) {
	GinkgoHelper()
	Expect(suite.World.Await(ctx, GinkgoWriter, vm.DeepCopy(), suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		status := obj.(*virtv1.VirtualMachine).Status
		last = crashed
		for _, c := range status.Conditions {
			if c.Type == virtv1.VirtualMachineReady && strings.Contains(c.Message, "QEMU was killed by signal 9") && strings.Contains(c.Message, "it is started again at") {
				told = status.PrintableStatus == virtv1.VirtualMachineStatusCrashLoopBackOff
				return c.Message, told, nil
			}
		}
		if status.PrintableStatus != virtv1.VirtualMachineStatusRunning {
			return string(status.PrintableStatus), false, nil
		}
		last = &virtv1.VirtualMachineInstance{}
		err := suite.World.Client.Get(ctx, client.ObjectKeyFromObject(crashed), last)
		return string(status.PrintableStatus) + " " + string(last.UID), last.UID != crashed.UID && last.Status.Phase == virtv1.Running, client.IgnoreNotFound(err)
	})).To(Succeed())
	return last, told
}

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
