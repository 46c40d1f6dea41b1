//go:build e2e

package storage

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/memorydump"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// elfCore is the beginning of an ELF core of x86-64.
const elfCore = "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x3e\x00"

var _ = Describe("the memory of a running VM", func() {
	It("is dumped to a claim, its disk is backed up to another, and the guest goes on", Label("alone"), func(ctx context.Context) {
		const boot = "cat /proc/sys/kernel/random/boot_id"
		ns := suite.Namespace(ctx)
		openBackups(ctx, ns)
		suite.Create(ctx, fixture.VM(ns, "plugged", fixture.ContainerDisk(suite.TinyImage()),
			fixture.Template("data", fixture.DataVolume(ns, "data", "64Mi")), func(vm *virtv1.VirtualMachine) { vm.Labels = map[string]string{"backups": ns} }))
		vmi := suite.RunningVMI(ctx, ns, "plugged")
		before := suite.Shell(ctx, vmi, boot)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "dumps"}}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		size := resource.NewQuantity(memorydump.ClaimSize(vmi, memorydump.DefaultOverhead), resource.BinarySI)
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *size}
		suite.Create(ctx, claim)

		By("dumping it")
		Expect(put(ctx, ns, "virtualmachines", "memorydump", &virtv1.VirtualMachineMemoryDumpRequest{ClaimName: "dumps"})).To(Succeed())
		request := dumpIs(ctx, ns, virtv1.MemoryDumpCompleted)
		Expect(request.FileName).To(HaveValue(MatchRegexp(`^plugged-dumps-\d{8}-\d{6}\.memory\.dump$`)))
		Expect(request.EndTimestamp.Time).To(BeTemporally(">=", request.StartTimestamp.Time))
		vm := machine(ctx, ns)
		Expect(vm.Spec.Template.Spec.Volumes).To(ContainElement(HaveField("Name", "dumps")))
		Expect(vm.Status.Conditions).NotTo(ContainElement(HaveField("Type", virtv1.VirtualMachineRestartRequired)))
		Expect(suite.Shell(ctx, vmi, boot)).To(Equal(before), "the guest goes on")

		By("reading the beginning of the file from a pod")
		Expect(beginning(ctx, ns, vmi.Status.LauncherContainerImageVersion, *request.FileName)).To(Equal(elfCore))

		By("letting go of the claim")
		Expect(put(ctx, ns, "virtualmachines", "removememorydump", nil)).To(Succeed())
		dumpIs(ctx, ns, "")
		Eventually(ctx, func() []virtv1.Volume { return machine(ctx, ns).Spec.Template.Spec.Volumes }, suite.BoundEnd, time.Second).
			ShouldNot(ContainElement(HaveField("Name", "dumps")))
		By("backing up its disk, then what has changed since")
		backsUp(ctx, ns, vmi)
		Expect(suite.Shell(ctx, vmi, boot)).To(Equal(before), "the guest goes on")
	}, SpecTimeout(30*time.Minute))
})

// dumpIs waits until the VM's memory dump is in the phase; with none until there is no request.
func dumpIs(ctx context.Context, ns string, want virtv1.MemoryDumpPhase) *virtv1.VirtualMachineMemoryDumpRequest {
	GinkgoHelper()
	var found *virtv1.VirtualMachineMemoryDumpRequest
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "plugged"}}
	err := suite.World.Await(ctx, GinkgoWriter, vm, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		found = obj.(*virtv1.VirtualMachine).Status.MemoryDumpRequest
		if found == nil {
			return "no memory dump", want == "", nil
		}
		return string(found.Phase) + " " + found.Message, found.Phase == want, nil
	})
	Expect(err).NotTo(HaveOccurred())
	return found
}

// beginning reads the first bytes of a file on the claim of dumps.
func beginning(ctx context.Context, ns, image, file string) string {
	GinkgoHelper()
	return fromClaim(ctx, ns, "dumps", image, "dd", "if=/dumps/"+file, "of=/dev/termination-log", "bs=20", "count=1")
}

// fromClaim is what a command writes to its termination log, in a pod with the launcher's image and user that has the claim at /dumps.
func fromClaim(ctx context.Context, ns, claim, image string, command ...string) string {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader-of-" + claim}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "reader", Image: image, Command: command,
			VolumeMounts: []corev1.VolumeMount{{Name: "claim", MountPath: "/dumps"}},
		}},
		Volumes: []corev1.Volume{{Name: "claim", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}},
	}}
	suite.Create(ctx, pod)
	message := ""
	err := suite.World.Await(ctx, GinkgoWriter, pod, suite.BoundEnd, func(obj client.Object) (string, bool, error) {
		status := obj.(*corev1.Pod).Status
		for _, container := range status.ContainerStatuses {
			if container.State.Terminated != nil {
				message = container.State.Terminated.Message
			}
		}
		return string(status.Phase), status.Phase == corev1.PodSucceeded, nil
	})
	Expect(err).NotTo(HaveOccurred())
	return message
}
