//go:build e2e

package storage

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a claim that asks for more", func() {
	It("gets it: its VM has a larger disk, of a file as of a device, and its clone shares its blocks", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "file", "64Mi"), fixture.DataVolume(ns, "device", "64Mi", fixture.Block()))
		for _, name := range []string{"file", "device"} {
			suite.DataVolume(ctx, ns, name, cdiv1.Succeeded)
			expand(ctx, ns, name, "128Mi")
		}
		vm := fixture.VM(ns, "larger", fixture.ContainerDisk(suite.TinyImage()), fixture.Claim("file", "file"), fixture.Claim("device", "device"))
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, "larger")
		Expect(suite.Shell(ctx, vmi, "cat /sys/block/vdb/size /sys/block/vdc/size")).To(Equal("262144\n262144"), "128 MiB in sectors of 512 bytes")
		suite.Shell(ctx, vmi, "dd if=/dev/urandom of=/dev/vdb bs=1M count=32 seek=80 && sync")
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())

		suite.Create(ctx, fixture.DataVolume(ns, "clone", "128Mi", fixture.CloneOf(ns, "file")))
		suite.DataVolume(ctx, ns, "clone", cdiv1.Succeeded)
		if suite.World.Existing || suite.World.Local.PoolType == "folder" {
			return // its files are elsewhere, or cannot share blocks
		}
		clone := &corev1.PersistentVolumeClaim{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "clone"}, clone)).To(Succeed())
		disk := filepath.Join(suite.World.Local.PoolPath, clone.Spec.VolumeName, "disk.img")
		extents, err := exec.CommandContext(ctx, "filefrag", "-v", disk).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", extents)
		Expect(string(extents)).To(ContainSubstring("shared"), "the clone on %s is a copy", suite.World.Local.PoolType)
	}, SpecTimeout(20*time.Minute))
})

// expand makes a claim ask for size, and waits until it has it.
func expand(ctx context.Context, namespace, name, size string) {
	GinkgoHelper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	Expect(suite.World.Client.Patch(ctx, claim, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
	want := resource.MustParse(size)
	Expect(suite.World.Await(ctx, GinkgoWriter, claim, suite.BoundEnd, func(object client.Object) (string, bool, error) {
		found := object.(*corev1.PersistentVolumeClaim)
		has := found.Status.Capacity[corev1.ResourceStorage]
		return fmt.Sprintf("it has %s of %s, conditions %v", has.String(), size, found.Status.Conditions), has.Cmp(want) >= 0, nil
	})).To(Succeed())
}
