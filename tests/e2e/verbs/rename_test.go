//go:build e2e

package verbs

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// identity prints what a guest knows itself by.
const identity = "cat /sys/class/net/eth0/address /sys/class/dmi/id/product_uuid"

var _ = Describe("virtctl rename", func() {
	It("gives a stopped VM another name, and leaves it its disk and identity", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.VM(ns, "web", fixture.ContainerDisk(suite.TinyImage()), fixture.Template("data", fixture.DataVolume(ns, "data", "64Mi"))))
		vmi := suite.RunningVMI(ctx, ns, "web")
		suite.Shell(ctx, vmi, "{ mkfs.ext2 /dev/vdb || mke2fs /dev/vdb; } && mkdir -p /mnt && mount /dev/vdb /mnt && echo kept > /mnt/file && umount /mnt && sync")
		was := suite.Shell(ctx, vmi, identity)
		disk := suite.DataVolume(ctx, ns, "data", cdiv1.Succeeded)
		Expect(refused(ctx, ns, "rename", "vm", "web", "shop")).To(ContainSubstring("renaming a running VM is not allowed"))

		By("stopping it")
		virtctl(ctx, ns, "stop", "web")
		Expect(suite.World.Gone(ctx, GinkgoWriter, vmi, suite.BoundEnd)).To(Succeed())
		suite.VMStatus(ctx, ns, "web", virtv1.VirtualMachineStatusStopped)

		By("renaming it")
		Expect(virtctl(ctx, ns, "rename", "vm", "web", "shop")).To(And(ContainSubstring("VM web was scheduled to rename"), ContainSubstring("VM web was renamed to shop")))
		vm := suite.VMStatus(ctx, ns, "shop", virtv1.VirtualMachineStatusStopped)
		Eventually(ctx, func(g Gomega) {
			now := &cdiv1.DataVolume{}
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(disk), now)).To(Succeed())
			g.Expect(now.UID).To(Equal(disk.UID))
			g.Expect(now.DeletionTimestamp).To(BeNil())
			g.Expect(now.OwnerReferences).To(ConsistOf(*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)))
		}, boundVerb, time.Second).Should(Succeed(), "the disk is the renamed VM's alone")

		By("starting it")
		virtctl(ctx, ns, "start", "shop")
		again := suite.RunningVMI(ctx, ns, "shop")
		Expect(suite.Shell(ctx, again, identity)).To(Equal(was))
		Expect(suite.Shell(ctx, again, "mkdir -p /mnt && mount /dev/vdb /mnt && cat /mnt/file")).To(Equal("kept"))
	}, SpecTimeout(25*time.Minute))
})
