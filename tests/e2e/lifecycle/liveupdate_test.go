//go:build e2e

package lifecycle

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a VM that is changed while it runs", func() {
	It("takes up processors and memory at once, and the rest at its next start", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "growing", fixture.ContainerDisk(suite.TinyImage()))
		vm.Spec.Template.Spec.Domain.CPU = &virtv1.CPU{Sockets: 1, Cores: 1, MaxSockets: 3}
		vm.Spec.Template.Spec.Domain.Memory = &virtv1.Memory{Guest: new(resource.MustParse("192Mi")), MaxGuest: new(resource.MustParse("320Mi"))}
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, "growing")
		boot := suite.Shell(ctx, vmi, "cat /proc/sys/kernel/random/boot_id")
		Expect(suite.Shell(ctx, vmi, "grep -c ^processor /proc/cpuinfo")).To(Equal("1"))

		By("finding what it was started with")
		revision := &appsv1.ControllerRevision{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: vmi.Status.VirtualMachineRevisionName}, revision)).To(Succeed())
		Expect(metav1.IsControlledBy(revision, vm)).To(BeTrue())

		By("adding a socket")
		patchTemplate(ctx, vm, map[string]any{"domain": map[string]any{"cpu": map[string]any{"sockets": 2}}})
		grown := instanceUntil(ctx, vmi, func(vmi *virtv1.VirtualMachineInstance) bool {
			now := vmi.Status.CurrentCPUTopology
			return now != nil && now.Sockets == 2 && !suite.Condition(vmi, virtv1.VirtualMachineInstanceVCPUChange)
		})
		Expect(grown.UID).To(Equal(vmi.UID))
		expectPodCPU(ctx, grown, "200m")

		By("adding memory")
		before := guestMemory(ctx, vmi)
		patchTemplate(ctx, vm, map[string]any{"domain": map[string]any{"memory": map[string]any{"guest": "256Mi"}}})
		grown = instanceUntil(ctx, vmi, func(vmi *virtv1.VirtualMachineInstance) bool {
			now := vmi.Status.Memory
			return now != nil && now.GuestCurrent.Value() == 256<<20 && !suite.Condition(vmi, virtv1.VirtualMachineInstanceMemoryChange)
		})
		Eventually(ctx, func() int { return guestMemory(ctx, vmi) - before }, suite.BoundEnd, time.Second).
			Should(BeNumerically(">", 60<<10), "what the guest has of it")
		Expect(suite.Shell(ctx, vmi, "cat /proc/sys/kernel/random/boot_id")).To(Equal(boot))
		Expect(restartMessage(machineUntil(ctx, vm, func(vm *virtv1.VirtualMachine) bool {
			return vm.Status.ObservedGeneration == vm.Generation
		}))).To(BeEmpty())

		By("changing what cannot be changed live")
		patchTemplate(ctx, vm, map[string]any{"hostname": "another"})
		machineUntil(ctx, vm, func(vm *virtv1.VirtualMachine) bool {
			return restartMessage(vm) == "a non-live-updatable field was changed in the template spec"
		})

		By("taking it back")
		patchTemplate(ctx, vm, map[string]any{"hostname": nil})
		machineUntil(ctx, vm, func(vm *virtv1.VirtualMachine) bool { return restartMessage(vm) == "" })

		By("removing a socket, which waits for a restart")
		patchTemplate(ctx, vm, map[string]any{"domain": map[string]any{"cpu": map[string]any{"sockets": 1}}})
		machineUntil(ctx, vm, func(vm *virtv1.VirtualMachine) bool {
			return restartMessage(vm) == "Reduction of CPU socket count requires a restart"
		})
		Expect(suite.Shell(ctx, vmi, "cat /proc/sys/kernel/random/boot_id")).To(Equal(boot))

		By("booting the guest, whose kernel finds the processor then where it could not before")
		suite.Reboot(ctx, vmi)
		Eventually(ctx, func() string {
			out, err := env.Shell(ctx, vmi.Status.Interfaces[0].IP, "cat /proc/sys/kernel/random/boot_id; grep -c ^processor /proc/cpuinfo", time.Minute)
			if err != nil || strings.HasPrefix(out, boot) {
				return ""
			}
			return out
		}, suite.BoundBoot, time.Second).Should(HaveSuffix("\n2"))

		By("restarting it")
		Expect(suite.World.Client.Delete(ctx, grown)).To(Succeed())
		next := nextVMI(ctx, grown)
		Expect(suite.Shell(ctx, next, "grep -c ^processor /proc/cpuinfo")).To(Equal("1"))
		machineUntil(ctx, vm, func(vm *virtv1.VirtualMachine) bool { return restartMessage(vm) == "" })
		Expect(next.Status.VirtualMachineRevisionName).NotTo(Equal(revision.Name))
		Expect(suite.World.Gone(ctx, GinkgoWriter, revision, suite.BoundEnd)).To(Succeed(), "the first revision goes")
	}, SpecTimeout(30*time.Minute))
})

// patchTemplate changes the spec of the VM's template.
func patchTemplate(ctx context.Context, vm *virtv1.VirtualMachine, change map[string]any) {
	GinkgoHelper()
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": change}}})
	Expect(err).NotTo(HaveOccurred())
	Expect(suite.World.Client.Patch(ctx, vm, client.RawPatch(types.MergePatchType, data))).To(Succeed())
}

// guestMemory is the guest's memory in KiB as its kernel sees it.
func guestMemory(ctx context.Context, vmi *virtv1.VirtualMachineInstance) int {
	GinkgoHelper()
	words := strings.Fields(suite.Shell(ctx, vmi, "grep ^MemTotal /proc/meminfo"))
	Expect(words).To(HaveLen(3))
	kibibytes, err := strconv.Atoi(words[1])
	Expect(err).NotTo(HaveOccurred())
	return kibibytes
}

func instanceUntil(ctx context.Context, vmi *virtv1.VirtualMachineInstance, done func(*virtv1.VirtualMachineInstance) bool) *virtv1.VirtualMachineInstance {
	GinkgoHelper()
	var found *virtv1.VirtualMachineInstance
	err := suite.World.Await(ctx, GinkgoWriter, vmi, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		found = obj.(*virtv1.VirtualMachineInstance)
		words := string(found.Status.Phase)
		for _, c := range found.Status.Conditions {
			words += "; " + string(c.Type) + " " + string(c.Status) + " " + c.Reason + " " + c.Message
		}
		return words, done(found), nil
	})
	Expect(err).NotTo(HaveOccurred())
	return found
}

func machineUntil(ctx context.Context, vm *virtv1.VirtualMachine, done func(*virtv1.VirtualMachine) bool) *virtv1.VirtualMachine {
	GinkgoHelper()
	var found *virtv1.VirtualMachine
	err := suite.World.Await(ctx, GinkgoWriter, vm, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		found = obj.(*virtv1.VirtualMachine)
		return string(found.Status.PrintableStatus) + " " + restartMessage(found), done(found), nil
	})
	Expect(err).NotTo(HaveOccurred())
	return found
}

// restartMessage is the message of the VM's condition RestartRequired; "" when there is none.
func restartMessage(vm *virtv1.VirtualMachine) string {
	for _, c := range vm.Status.Conditions {
		if c.Type == virtv1.VirtualMachineRestartRequired && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// expectPodCPU waits until the node says that it has set processors aside for the guest.
func expectPodCPU(ctx context.Context, vmi *virtv1.VirtualMachineInstance, want string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(suite.World.Client.List(ctx, pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{virtv1.CreatedByLabel: string(vmi.UID)})).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
		for _, status := range pods.Items[0].Status.ContainerStatuses {
			if status.Name == names.ComputeContainer {
				g.Expect(status.Resources.Requests.Cpu().String()).To(Equal(want))
			}
		}
	}, suite.BoundEnd, time.Second).Should(Succeed())
}
