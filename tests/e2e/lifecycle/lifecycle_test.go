//go:build e2e

// Package lifecycle tests the life of a VM: start, run, stop, crash, delete.
package lifecycle

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestLifecycle(t *testing.T) { suite.Run(t, "lifecycle") }

const cloudInit = "#cloud-config\nruncmd:\n  - echo from-cloud-init > /run/proof\n"

var _ = Describe("a VM from a container disk", func() {
	It("starts, is reached, stops, starts again, and goes with its pod", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "tiny", fixture.ContainerDisk(suite.TinyImage()), fixture.EmptyDisk("scratch", "64Mi"), fixture.CloudInit(cloudInit))
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, "tiny")
		suite.VMStatus(ctx, ns, "tiny", virtv1.VirtualMachineStatusRunning)

		By("saying what it is")
		Expect(vmi.Status.NodeName).NotTo(BeEmpty())
		Expect(vmi.Status.Interfaces[0].IP).NotTo(BeEmpty())
		Expect(suite.Condition(vmi, virtv1.VirtualMachineInstanceReady)).To(BeTrue())
		Expect(vmi.Status.GuestOSInfo.KernelRelease).NotTo(BeEmpty())
		// The guest takes logins before cloud-init is through.
		Expect(suite.Shell(ctx, vmi, "until [ -s /run/proof ]; do sleep 1; done; cat /run/proof")).To(Equal("from-cloud-init"))
		Expect(suite.Shell(ctx, vmi, "cat /proc/partitions")).To(ContainSubstring("65536"))
		expectNoWarnings(ctx, ns)

		By("halting it")
		patchStrategy(ctx, vm, virtv1.RunStrategyHalted)
		suite.VMStatus(ctx, ns, "tiny", virtv1.VirtualMachineStatusStopped)
		Expect(suite.World.Gone(ctx, GinkgoWriter, vmi, suite.BoundEnd)).To(Succeed())

		By("starting it again")
		patchStrategy(ctx, vm, virtv1.RunStrategyAlways)
		again := suite.RunningVMI(ctx, ns, "tiny")
		Expect(again.UID).NotTo(Equal(vmi.UID))

		By("deleting it")
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())
		var pods corev1.PodList
		Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(ns))).To(Succeed())
		for _, pod := range pods.Items {
			Expect(pod.DeletionTimestamp).NotTo(BeNil(), "pod %s outlives its VM", pod.Name)
		}
	}, SpecTimeout(25*time.Minute))

	It("starts again after its guest powered off and after QEMU was killed", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.VM(ns, "phoenix", fixture.ContainerDisk(suite.TinyImage())))
		first := suite.RunningVMI(ctx, ns, "phoenix")

		By("powering the guest off from inside")
		suite.PowerOff(ctx, first)
		second := nextVMI(ctx, first)

		By("killing QEMU")
		killQEMU(ctx, second)
		third := nextVMI(ctx, second)
		Expect(third.Status.Phase).To(Equal(virtv1.Running))
	}, SpecTimeout(30*time.Minute))
})

// nextVMI waits until another instance of the same VM runs.
func nextVMI(ctx context.Context, old *virtv1.VirtualMachineInstance) *virtv1.VirtualMachineInstance {
	GinkgoHelper()
	var next *virtv1.VirtualMachineInstance
	err := suite.World.Await(ctx, GinkgoWriter, old, 2*suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		next = obj.(*virtv1.VirtualMachineInstance)
		return string(next.UID[:8]) + " " + string(next.Status.Phase), next.UID != old.UID && next.Status.Phase == virtv1.Running, nil
	})
	Expect(err).NotTo(HaveOccurred())
	return suite.RunningVMI(ctx, next.Namespace, next.Name)
}

// killQEMU ends the QEMU process of an instance, which names its domain in its arguments.
func killQEMU(ctx context.Context, vmi *virtv1.VirtualMachineInstance) {
	GinkgoHelper()
	if suite.World.Existing {
		Skip("the node of an existing cluster is out of reach")
	}
	out, err := exec.CommandContext(ctx, "pgrep", "-f", "qemu-system.*guest="+vmi.Namespace+"_"+vmi.Name+",").Output()
	Expect(err).NotTo(HaveOccurred(), "finding QEMU of %s", vmi.Name)
	Expect(exec.CommandContext(ctx, "kill", append([]string{"-9"}, strings.Fields(string(out))...)...).Run()).To(Succeed())
}

func patchStrategy(ctx context.Context, vm *virtv1.VirtualMachine, strategy virtv1.VirtualMachineRunStrategy) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"`+string(strategy)+`"}}`))
	Expect(suite.World.Client.Patch(ctx, vm, patch)).To(Succeed())
}

// Words of those who try again: of a kubelet that had no time to fetch something, and of the scheduler, which may see a pod before the
// claim that was made a moment earlier, or changed between its look and its write, or for which suites beside this one have left no room just now.
var (
	outOfTime = regexp.MustCompile(`timed out|context deadline exceeded|i/o timeout|failed to sync`)
	noRoom    = regexp.MustCompile(`persistentvolumeclaim "[^"]*" not found|persistentvolumeclaims "[^"]*": the object has been modified|Insufficient |Too many pods`)
)

// unrelated is what the API server's node authorizer tells a kubelet that asks for a new pod's claim: it learns of what a pod uses from a
// watch, which may be a moment later than the kubelet hears of the pod. The kubelet tries again.
const unrelated = "no relationship found between node"

// passing says whether a Warning event tells of what a busy machine brings about, and no fault of a start.
func passing(e corev1.Event) bool {
	switch {
	case e.Source.Component == "kubelet" && outOfTime.MatchString(e.Message):
		return true
	case e.Reason == "FailedMount" && strings.Contains(e.Message, unrelated):
		return true
	}
	return e.Reason == "FailedScheduling" && noRoom.MatchString(e.Message)
}

// expectNoWarnings makes sure that a normal start, which the events tell of by now, raised no Warning event but those that pass.
func expectNoWarnings(ctx context.Context, namespace string) {
	GinkgoHelper()
	var events corev1.EventList
	Eventually(func(g Gomega) {
		g.Expect(suite.World.Client.List(ctx, &events, client.InNamespace(namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(HaveField("Reason", string(virtv1.Started))), "the start is told of")
	}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
	for _, e := range events.Items {
		if !passing(e) {
			Expect(e.Type).NotTo(Equal(corev1.EventTypeWarning), "%s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}
