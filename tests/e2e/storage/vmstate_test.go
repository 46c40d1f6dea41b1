//go:build e2e

package storage

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	vmsnapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// Commands to a TPM 2.0 as its specification has them, with an empty password: to make eight bytes that last (at 0x01500010), to
// write eight letters there, and to read them.
const (
	tpmDefine = `\x80\x02\x00\x00\x00\x2d\x00\x00\x01\x2a\x40\x00\x00\x01\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00` +
		`\x00\x00\x00\x0e\x01\x50\x00\x10\x00\x0b\x00\x06\x00\x06\x00\x00\x00\x08`
	tpmWrite = `\x80\x02\x00\x00\x00\x2b\x00\x00\x01\x37\x01\x50\x00\x10\x01\x50\x00\x10\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00` +
		`\x00\x08%s\x00\x00`
	tpmRead = `\x80\x02\x00\x00\x00\x23\x00\x00\x01\x4e\x01\x50\x00\x10\x01\x50\x00\x10\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00\x00\x08\x00\x00`
	tpmDone = "80020000001300000000"
)

var _ = Describe("a virtual machine with a TPM that lasts", func() {
	It("has what was in the TPM when a snapshot of it was taken, after it is restored, and so has a second one", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "trusted", fixture.ContainerDisk(suite.TinyImage()), func(vm *virtv1.VirtualMachine) {
			vm.Spec.Template.Spec.Domain.Devices.TPM = &virtv1.TPMDevice{Persistent: new(true)}
		})
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, "trusted")
		Expect(askTPM(ctx, vmi, tpmDefine)).To(HavePrefix(tpmDone))
		Expect(askTPM(ctx, vmi, fmt.Sprintf(tpmWrite, "BEFORE!!"))).To(HavePrefix(tpmDone))
		strategy := func(name string, to virtv1.VirtualMachineRunStrategy) {
			GinkgoHelper()
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"runStrategy":%q}}`, to))
			Expect(suite.World.Client.Patch(ctx, &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}, patch)).To(Succeed())
		}

		By("taking a snapshot while it is stopped")
		strategy("trusted", virtv1.RunStrategyHalted)
		suite.VMStatus(ctx, ns, "trusted", virtv1.VirtualMachineStatusStopped)
		snapshot := suite.Snapshot(ctx, ns, "before", "trusted")
		Expect(snapshot.Status.SnapshotVolumes.IncludedVolumes).To(ConsistOf("persistent-state-for-trusted"))

		By("changing what is in the TPM")
		strategy("trusted", virtv1.RunStrategyAlways)
		vmi = suite.RunningVMI(ctx, ns, "trusted")
		Expect(askTPM(ctx, vmi, fmt.Sprintf(tpmWrite, "AFTER!!!"))).To(HavePrefix(tpmDone))
		former := stateOf(ctx, ns, "trusted")

		// restored has the VM of the name be what the snapshot has, and reads its TPM after it has started.
		restored := func(restore, name string) string {
			GinkgoHelper()
			object := suite.Restore(ns, restore, name, "before")
			object.Spec.TargetReadinessPolicy = new(vmsnapshotv1.VirtualMachineRestoreStopTarget)
			suite.Create(ctx, object)
			suite.Restored(ctx, object)
			strategy(name, virtv1.RunStrategyAlways)
			return askTPM(ctx, suite.RunningVMI(ctx, ns, name), tpmRead)
		}

		By("restoring it")
		Expect(restored("back", "trusted")).To(ContainSubstring("4245464f52452121"), "BEFORE!!, as it was written")
		Expect(stateOf(ctx, ns, "trusted").UID).NotTo(Equal(former.UID))
		Expect(suite.World.Gone(ctx, GinkgoWriter, former, suite.BoundEnd)).To(Succeed())

		By("restoring it to a second one, which has another UUID")
		Expect(restored("copy", "second")).To(ContainSubstring("4245464f52452121"), "BEFORE!!, under the second one's UUID")
		Expect(metav1.GetControllerOf(stateOf(ctx, ns, "second")).Name).To(Equal("second"))
	}, SpecTimeout(30*time.Minute))
})

// askTPM sends a command to the guest's TPM and returns the answer in hexadecimal digits.
func askTPM(ctx context.Context, vmi *virtv1.VirtualMachineInstance, command string) string {
	GinkgoHelper()
	return suite.Shell(ctx, vmi, `exec 3<>/dev/tpm0; printf '`+command+`' | dd bs=4096 status=none >&3; dd bs=4096 count=1 status=none <&3 | od -An -v -tx1 | tr -d ' \n'`)
}

// stateOf is the one claim with the state of a VM.
func stateOf(ctx context.Context, namespace, vm string) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	var list corev1.PersistentVolumeClaimList
	Expect(suite.World.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"persistent-state-for": vm})).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}
