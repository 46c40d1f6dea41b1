//go:build e2e

package faults

import (
	"context"
	"slices"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// noticed bounds the time in which a part that stands still is told, by the instance's own times: half a minute, with room for a busy machine.
const noticed = 4 * time.Minute

var _ = Describe("a part of a VM that stands still", Label("still"), func() {
	It("is named, recovers by itself, and holds up no end", func(ctx context.Context) {
		if suite.World.Existing {
			Skip("the node of an existing cluster is out of reach")
		}
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "still", fixture.ContainerDisk(suite.TinyImage()))
		suite.Create(ctx, vm)
		vmi := expectVMI(ctx, ns, "still", readyFor(""))
		for _, part := range []struct{ program, reason string }{
			{"libvirtd", "LibvirtUnresponsive"}, {"virt-launcher", "LauncherUnresponsive"}, {"qemu-system", "QEMUUnresponsive"},
		} {
			By("stopping " + part.program + " and letting it go on")
			pid := stopProcess(ctx, vmi, part.program)
			began := time.Now()
			found := expectVMI(ctx, ns, "still", readyFor(part.reason))
			for _, c := range found.Status.Conditions {
				if c.Type == virtv1.VirtualMachineInstanceReady {
					Expect(c.LastTransitionTime.Sub(began)).To(BeNumerically("<", noticed))
				}
			}
			Expect(found.Status.Phase).To(Equal(virtv1.Running), "who stands still has not ended")
			suite.VMStatus(ctx, ns, "still", virtv1.VirtualMachineStatusUnknown)
			Expect(syscall.Kill(pid, syscall.SIGCONT)).To(Succeed())
			found = expectVMI(ctx, ns, "still", readyFor(""))
			Expect(found.UID).To(Equal(vmi.UID))
			suite.VMStatus(ctx, ns, "still", virtv1.VirtualMachineStatusRunning)
		}
		expectEvents(ctx, ns, "QEMUUnresponsive", "LibvirtUnresponsive", "LauncherUnresponsive", "Responsive")

		By("replacing the instance while its QEMU stands still")
		stopProcess(ctx, vmi, "qemu-system")
		Expect(suite.World.Client.Delete(ctx, vmi)).To(Succeed())
		next := expectVMI(ctx, ns, "still", func(found *virtv1.VirtualMachineInstance) bool {
			return found.UID != vmi.UID && readyFor("")(found)
		})

		By("deleting the VM while its launcher stands still")
		stopProcess(ctx, next, "virt-launcher")
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(30*time.Minute))
})

// readyFor holds for an instance that is not ready for a reason; for one that is ready when the
// reason is empty.
func readyFor(reason string) func(*virtv1.VirtualMachineInstance) bool {
	return func(vmi *virtv1.VirtualMachineInstance) bool {
		return slices.ContainsFunc(vmi.Status.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool {
			return c.Type == virtv1.VirtualMachineInstanceReady && (c.Status == corev1.ConditionTrue) == (reason == "") && (reason == "" || c.Reason == reason)
		})
	}
}

// stopProcess stops a program in the launcher pod of vmi and returns its number on this machine.
func stopProcess(ctx context.Context, vmi *virtv1.VirtualMachineInstance, program string) int {
	GinkgoHelper()
	return signalProcess(ctx, vmi, program, syscall.SIGSTOP)
}

func expectEvents(ctx context.Context, ns string, reasons ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var events corev1.EventList
		g.Expect(suite.World.Client.List(ctx, &events, client.InNamespace(ns))).To(Succeed())
		for _, reason := range reasons {
			g.Expect(events.Items).To(ContainElement(HaveField("Reason", reason)))
		}
	}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
}
