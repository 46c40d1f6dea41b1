//go:build e2e

package storage

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/catalog/template"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a template of a virtual machine", func() {
	It("is made with a copy of its disk, and makes another that has what was on it", func(ctx context.Context) {
		builds, catalog := suite.Namespace(ctx), suite.Namespace(ctx)
		vm := fixture.VM(builds, "web", fixture.ContainerDisk(suite.TinyImage()), fixture.Template("data", fixture.DataVolume(builds, "data", "64Mi")))
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, builds, "web")
		suite.Shell(ctx, vmi, "set -e; mkfs.ext2 /dev/vdb; mkdir -p /mnt; mount /dev/vdb /mnt; echo golden > /mnt/file; umount /mnt; sync")
		const known = "cat /sys/class/dmi/id/product_uuid /sys/class/net/eth0/address"
		before := strings.Fields(suite.Shell(ctx, vmi, known))

		By("asking for it in another namespace")
		request := &vmtemplatev1beta1.VirtualMachineTemplateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: catalog, Name: "golden"}}
		request.Spec.VirtualMachineRef = vmtemplatev1beta1.VirtualMachineReference{Namespace: builds, Name: "web"}
		suite.Create(ctx, request)
		err := suite.World.Await(ctx, GinkgoWriter, request.DeepCopy(), suite.BoundImport, func(object client.Object) (string, bool, error) {
			object.(*vmtemplatev1beta1.VirtualMachineTemplateRequest).DeepCopyInto(request)
			return fmt.Sprint(request.Status.Conditions), meta.IsStatusConditionTrue(request.Status.Conditions, vmtemplatev1beta1.ConditionReady), nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())

		By("making a VM of it")
		made := &unstructured.Unstructured{}
		made.SetGroupVersionKind(vmtemplatev1beta1.GroupVersion.WithKind("VirtualMachineTemplate"))
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: catalog, Name: request.Status.TemplateRef.Name}, made)).To(Succeed())
		read, err := template.FromVirtualMachineTemplate(made)
		Expect(err).NotTo(HaveOccurred())
		processed, err := template.Process(read, map[string]string{"NAME": "second"})
		Expect(err).NotTo(HaveOccurred())
		processed.Objects[0].SetNamespace(catalog)
		suite.Create(ctx, processed.Objects[0])
		second := suite.RunningVMI(ctx, catalog, "second")
		Expect(suite.Shell(ctx, second, "mkdir -p /mnt; mount /dev/vdb /mnt; cat /mnt/file; umount /mnt")).To(Equal("golden"))
		after := strings.Fields(suite.Shell(ctx, second, known))
		Expect(after).To(HaveLen(2))
		Expect(after).NotTo(ContainElement(before[0]), "the UUID")
		Expect(after).NotTo(ContainElement(before[1]), "the address")

		By("deleting it: its disk goes with it")
		Expect(suite.World.Client.Delete(ctx, made)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			disks := &cdiv1.DataVolumeList{}
			of := client.MatchingLabels{vmtemplatev1beta1.LabelRequest: string(request.UID)}
			g.Expect(suite.World.Client.List(ctx, disks, client.InNamespace(catalog), of)).To(Succeed())
			g.Expect(disks.Items).To(BeEmpty())
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
	}, SpecTimeout(15*time.Minute))
})
