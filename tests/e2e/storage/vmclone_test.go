//go:build e2e

package storage

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a running virtual machine", func() {
	It("is cloned: the same disk, and another machine", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "web", fixture.ContainerDisk(suite.TinyImage()), fixture.Template("data", fixture.DataVolume(ns, "data", "64Mi")))
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, "web")
		suite.Shell(ctx, vmi, "set -e; mkfs.ext2 /dev/vdb; mkdir -p /mnt; mount /dev/vdb /mnt; echo mine > /mnt/file; umount /mnt; sync")
		const known = "cat /sys/class/dmi/id/product_uuid /sys/class/net/eth0/address"
		before := strings.Fields(suite.Shell(ctx, vmi, known))

		By("cloning it")
		clone := &clonev1.VirtualMachineClone{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "copy"},
			Spec:       clonev1.VirtualMachineCloneSpec{Source: &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}},
		}
		suite.Create(ctx, clone)
		err := suite.World.Await(ctx, GinkgoWriter, clone.DeepCopy(), suite.BoundImport, func(object client.Object) (string, bool, error) {
			object.(*clonev1.VirtualMachineClone).DeepCopyInto(clone)
			return fmt.Sprintf("%s %v", clone.Status.Phase, clone.Status.Conditions), clone.Status.Phase == clonev1.Succeeded, nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(*clone.Status.TargetName).To(HavePrefix("clone-web-"))
		made := suite.VMStatus(ctx, ns, *clone.Status.TargetName, virtv1.VirtualMachineStatusStopped)

		By("starting the second")
		start := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Always"}}`))
		Expect(suite.World.Client.Patch(ctx, made, start)).To(Succeed())
		second := suite.RunningVMI(ctx, ns, made.Name)
		Expect(suite.Shell(ctx, second, "mkdir -p /mnt; mount /dev/vdb /mnt; cat /mnt/file; umount /mnt")).To(Equal("mine"))
		after := strings.Fields(suite.Shell(ctx, second, known))
		Expect(after).To(HaveLen(2))
		Expect(after).NotTo(ContainElement(before[0]), "the UUID")
		Expect(after).NotTo(ContainElement(before[1]), "the address")
		Expect(suite.RunningVMI(ctx, ns, "web").UID).To(Equal(vmi.UID), "the first runs on")

		By("having cleared up")
		err = suite.World.Await(ctx, GinkgoWriter, clone.DeepCopy(), suite.BoundEnd, func(object client.Object) (string, bool, error) {
			object.(*clonev1.VirtualMachineClone).DeepCopyInto(clone)
			return fmt.Sprintf("%+v", clone.Status), clone.Status.SnapshotName == nil && clone.Status.RestoreName == nil, nil
		})
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(15*time.Minute))
})
