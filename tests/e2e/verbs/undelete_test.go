//go:build e2e

package verbs

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("virtctl undelete", func() {
	It("brings back a VM that keeps its volumes, with its disk and identity", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "web", fixture.ContainerDisk(suite.TinyImage()), fixture.Template("data", fixture.DataVolume(ns, "data", "64Mi")))
		vm.Annotations = map[string]string{keep.AnnotationVolumes: "true"}
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, "web")
		suite.Shell(ctx, vmi, "{ mkfs.ext2 /dev/vdb || mke2fs /dev/vdb; } && mkdir -p /mnt && mount /dev/vdb /mnt && echo kept > /mnt/file && umount /mnt && sync")
		was := suite.Shell(ctx, vmi, identity)
		disk := suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
		Expect(refused(ctx, ns, "undelete", "vm", "web")).To(ContainSubstring("there is no record of it in namespace " + ns))

		By("deleting it")
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vmi, suite.BoundEnd)).To(Succeed())
		Expect(keptDisk(ctx, disk).Labels).To(HaveKeyWithValue(keep.LabelFor, string(vm.UID)))

		By("bringing it back")
		Expect(virtctl(ctx, ns, "undelete", "vm", "web")).To(ContainSubstring("VM web was brought back"))
		again := suite.RunningVMI(ctx, ns, "web")
		Expect(suite.Shell(ctx, again, identity)).To(Equal(was))
		Expect(suite.Shell(ctx, again, "mkdir -p /mnt && mount /dev/vdb /mnt && cat /mnt/file")).To(Equal("kept"))
		back := &virtv1.VirtualMachine{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), back)).To(Succeed())
		Expect(back.UID).NotTo(Equal(vm.UID))
		Expect(back.Annotations).To(And(HaveKeyWithValue(keep.AnnotationVolumes, "true"), Not(HaveKey(keep.AnnotationRecord))))
		Expect(keptDisk(ctx, disk).Labels).To(HaveKeyWithValue(keep.LabelFor, string(back.UID)))
		Eventually(ctx, func(g Gomega) {
			var records appsv1.ControllerRevisionList
			g.Expect(suite.World.Client.List(ctx, &records, client.InNamespace(ns), client.MatchingLabels{keep.LabelRecord: "true"})).To(Succeed())
			g.Expect(records.Items).To(BeEmpty(), "the record goes when the VM has its volumes")
		}, boundVerb, time.Second).Should(Succeed())
	}, SpecTimeout(20*time.Minute))
})

// keptDisk is the DataVolume that disk was, which nobody owns and nobody deletes.
func keptDisk(ctx context.Context, disk *cdiv1.DataVolume) *cdiv1.DataVolume {
	GinkgoHelper()
	now := &cdiv1.DataVolume{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(disk), now)).To(Succeed())
	Expect(now.UID).To(Equal(disk.UID))
	Expect(now.DeletionTimestamp).To(BeNil())
	Expect(now.OwnerReferences).To(BeEmpty())
	return now
}
