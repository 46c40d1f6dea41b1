//go:build e2e

package storage

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// adoption on a DataVolume says whether it may take over a claim of its name.
const adoption = "cdi.kubevirt.io/allowClaimAdoption"

var _ = Describe("a DataVolume whose claim another one fills", func() {
	It("says why it waits, and takes the other's disk over when it may, as it is", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "shop"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("256Mi")}},
				DataSourceRef: &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: cdiv1.VolumeImportSourceRef, Name: "tiny"},
			},
		}
		rival := fixture.DataVolume(ns, "shop", "256Mi") // blank, so that its disk would be another one
		rival.Annotations[adoption] = "false"
		suite.Create(ctx, &cdiv1.VolumeImportSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tiny"},
			Spec:       cdiv1.VolumeImportSourceSpec{Source: &cdiv1.ImportSourceType{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: root + "/disk.qcow2"}}},
		}, claim, rival, fixture.DataVolume(ns, "same", "256Mi", fixture.HTTP(root+"/disk.qcow2")))
		inTheWay(ctx, ns, `Resource "shop" already exists and is yet to be filled by its VolumeImportSource`)

		By("having the claim filled by its own DataVolume")
		annotate(ctx, claim, names.AnnotationBind)
		want := suite.DataVolume(ctx, ns, "same", cdiv1.Succeeded).Annotations[names.AnnotationDigest]
		Expect(want).NotTo(BeEmpty())
		Eventually(func() (map[string]string, error) {
			err := suite.World.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)
			return claim.Annotations, err
		}).WithContext(ctx).WithTimeout(suite.BoundImport).WithPolling(time.Second).Should(HaveKeyWithValue(names.AnnotationDigest, want))
		inTheWay(ctx, ns, `Resource "shop" already exists and is not managed by DataVolume`)

		By("letting the other take it over")
		annotate(ctx, rival, adoption)
		suite.DataVolume(ctx, ns, "shop", cdiv1.Succeeded)
		found := &corev1.PersistentVolumeClaim{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(claim), found)).To(Succeed())
		Expect(found.UID).To(Equal(claim.UID))
		Expect(metav1.IsControlledBy(found, rival)).To(BeTrue(), "the owners are %v", found.OwnerReferences)
		Expect(found.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, want))
		if suite.World.Existing {
			return // its disk is elsewhere
		}
		disk, err := os.Open(filepath.Join(suite.World.Local.PoolPath, found.Spec.VolumeName, names.DiskFile))
		Expect(err).NotTo(HaveOccurred())
		defer disk.Close()
		Expect(digest.Of(ctx, disk, 256<<20, 2)).To(Equal(want))
	}, SpecTimeout(15*time.Minute))
})

// inTheWay waits until DataVolume shop says that its claim is another's, in these words.
func inTheWay(ctx context.Context, ns, words string) {
	GinkgoHelper()
	dv := suite.DataVolumeUntil(ctx, ns, "shop", func(dv *cdiv1.DataVolume) bool {
		for _, c := range dv.Status.Conditions {
			if c.Type == cdiv1.DataVolumeBound && c.Reason == "ErrResourceExists" && strings.Contains(c.Message, words) {
				return true
			}
		}
		return false
	})
	Expect(dv.Status.Phase).To(Equal(cdiv1.Pending))
}

// annotate gives an object an annotation with the value "true".
func annotate(ctx context.Context, object client.Object, annotation string) {
	GinkgoHelper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+annotation+`":"true"}}}`))
	Expect(suite.World.Client.Patch(ctx, object, patch)).To(Succeed())
}
