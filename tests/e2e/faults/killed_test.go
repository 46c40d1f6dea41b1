//go:build e2e

package faults

import (
	"context"
	"fmt"
	"strings"
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

// told bounds the time from a kill to the phase that follows from it, by the instance's own times: seconds, with room for a busy machine,
// on which each of those who tell the next may have to wait for a processor. Who were not told of it would not look for hours.
const told = 3 * time.Minute

var _ = Describe("a part of a VM that is killed", Label("killed"), func() {
	BeforeEach(func() {
		if suite.World.Existing {
			Skip("the node of an existing cluster is out of reach")
		}
	})

	DescribeTable("ends the instance within seconds, with the reason", func(ctx context.Context, program string, kind virtv1.VirtualMachineInstanceConditionType, reason, words string) {
		ns := suite.Namespace(ctx)
		// An instance of this strategy stays as it ended.
		suite.Create(ctx, fixture.VM(ns, "once", fixture.Strategy(virtv1.RunStrategyOnce), fixture.ContainerDisk(suite.TinyImage())))
		vmi := expectVMI(ctx, ns, "once", readyFor(""))
		killed := time.Now()
		signalProcess(ctx, vmi, program, syscall.SIGKILL)
		found := expectFailed(ctx, vmi, killed)
		Expect(says(kind, reason, words)(found)).To(BeTrue(), "%s is to have the reason %s: %s", kind, reason, summary(found))
		for _, c := range found.Status.Conditions {
			if c.Type == kind {
				expectSoon(found, "condition "+string(kind), killed, c.LastTransitionTime.Time)
			}
		}
		suite.VMStatus(ctx, ns, "once", virtv1.VirtualMachineStatusStopped)
		if program == "qemu-system" {
			expectCrashEvent(ctx, found, words)
		}
	},
		Entry("QEMU", SpecTimeout(20*time.Minute), "qemu-system", virtv1.VirtualMachineInstanceReady, "QEMUEnded", "QEMU was killed by signal 9"),
		Entry("virt-launcher", SpecTimeout(20*time.Minute), "virt-launcher", virtv1.VirtualMachineInstanceSynchronized, "PodFailed", "the launcher"),
	)

	It("is back within seconds and ends no guest, when it is libvirt", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.VM(ns, "steady", fixture.Strategy(virtv1.RunStrategyOnce), fixture.ContainerDisk(suite.TinyImage())))
		vmi := expectVMI(ctx, ns, "steady", readyFor(""))
		qemu := processOf(ctx, vmi, "qemu-system")
		killed := time.Now()
		libvirt := signalProcess(ctx, vmi, "libvirtd", syscall.SIGKILL)
		Eventually(func(g Gomega) {
			g.Expect(programsOf(ctx, vmi, "libvirtd")).To(And(HaveLen(1), Not(ContainElement(libvirt))), "processes of libvirtd, of which %d was killed", libvirt)
			found := &virtv1.VirtualMachineInstance{}
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vmi), found)).To(Succeed())
			g.Expect(found.UID).To(Equal(vmi.UID))
			g.Expect(readyFor("")(found) && found.Status.Phase == virtv1.Running).To(BeTrue(), "%s", summary(found))
		}).WithContext(ctx).WithTimeout(told).WithPolling(200*time.Millisecond).Should(Succeed(), "%s after the kill", told)
		found := expectVMI(ctx, ns, "steady", readyFor(""))
		Expect(processOf(ctx, found, "qemu-system")).To(Equal(qemu), "the guest runs on")
		for _, t := range found.Status.PhaseTransitionTimestamps {
			Expect(t.PhaseTransitionTimestamp.Time).To(BeTemporally("<=", killed), "no phase follows from the kill: %s", summary(found))
		}
	}, SpecTimeout(20*time.Minute))
})

// expectFailed waits until vmi is Failed, and expects that it was so by the bound after the kill: by its own times, for this
// test may look later.
func expectFailed(ctx context.Context, vmi *virtv1.VirtualMachineInstance, killed time.Time) *virtv1.VirtualMachineInstance {
	GinkgoHelper()
	found := expectVMI(ctx, vmi.Namespace, vmi.Name, func(found *virtv1.VirtualMachineInstance) bool { return found.Status.Phase == virtv1.Failed })
	Expect(found.UID).To(Equal(vmi.UID))
	var entered time.Time
	for _, t := range found.Status.PhaseTransitionTimestamps {
		if t.Phase == virtv1.Failed {
			entered = t.PhaseTransitionTimestamp.Time
		}
	}
	expectSoon(found, "phase Failed", killed, entered)
	return found
}

// expectCrashEvent waits until an event tells of the end of vmi in the field's sentence, and then by its cause.
func expectCrashEvent(ctx context.Context, vmi *virtv1.VirtualMachineInstance, cause string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var events corev1.EventList
		g.Expect(suite.World.Client.List(ctx, &events, client.InNamespace(vmi.Namespace))).To(Succeed())
		var notes []string
		for _, e := range events.Items {
			if e.InvolvedObject.UID == vmi.UID && e.Type == corev1.EventTypeWarning && e.Reason == string(virtv1.Stopped) {
				notes = append(notes, e.Message)
			}
		}
		g.Expect(notes).To(ConsistOf(HavePrefix("The VirtualMachineInstance crashed. " + cause)))
	}).WithContext(ctx).WithTimeout(told).WithPolling(time.Second).Should(Succeed())
}

// expectSoon expects that something came of a kill within the bound. An instance's times are whole seconds.
func expectSoon(vmi *virtv1.VirtualMachineInstance, what string, killed, came time.Time) {
	GinkgoHelper()
	took := came.Sub(killed)
	AddReportEntry(fmt.Sprintf("%s came %s after the kill", what, took.Round(time.Second)))
	Expect(took).To(And(BeNumerically(">", -2*time.Second), BeNumerically("<", told)), "%s after the kill at %s: %s", what, killed.UTC().Format(time.RFC3339), summary(vmi))
}

// summary is how an instance is and was, in one line.
func summary(vmi *virtv1.VirtualMachineInstance) string {
	text := fmt.Sprintf("%s %s", vmi.Status.Phase, vmi.Status.Reason)
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		text += fmt.Sprintf("; %s at %s", t.Phase, t.PhaseTransitionTimestamp.UTC().Format(time.RFC3339))
	}
	for _, c := range vmi.Status.Conditions {
		text += fmt.Sprintf("; %s=%s %s since %s: %s", c.Type, c.Status, c.Reason, c.LastTransitionTime.UTC().Format(time.RFC3339), c.Message)
	}
	return text
}

// programsOf are the numbers of a program's processes in the launcher pod of vmi.
func programsOf(ctx context.Context, vmi *virtv1.VirtualMachineInstance, program string) []int {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{virtv1.CreatedByLabel: string(vmi.UID)})).To(Succeed())
	Expect(pods.Items).To(HaveLen(1))
	var found []int
	for _, p := range processesOf(pods.Items[0].UID) {
		if strings.HasPrefix(p.program(), program) {
			found = append(found, p.pid)
		}
	}
	return found
}

// processOf is the number of a program in the launcher pod of vmi.
func processOf(ctx context.Context, vmi *virtv1.VirtualMachineInstance, program string) int {
	GinkgoHelper()
	found := programsOf(ctx, vmi, program)
	Expect(found).NotTo(BeEmpty(), "processes of %s of VMI %s", program, vmi.Name)
	return found[0]
}

// signalProcess sends a signal to a program in the launcher pod of vmi, and returns its number on this machine.
func signalProcess(ctx context.Context, vmi *virtv1.VirtualMachineInstance, program string, signal syscall.Signal) int {
	GinkgoHelper()
	pid := processOf(ctx, vmi, program)
	Expect(syscall.Kill(pid, signal)).To(Succeed())
	return pid
}
