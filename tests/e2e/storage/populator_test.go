//go:build e2e

package storage

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a claim with a VolumeImportSource", func() {
	It("gets the disk when a VM uses it, and nothing else is left", func(ctx context.Context) {
		namespace := suite.Namespace(ctx)
		key := client.ObjectKey{Namespace: namespace, Name: "root"}
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "root"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("256Mi")}},
				DataSourceRef: &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: cdiv1.VolumeImportSourceRef, Name: "tiny"},
			},
		}
		suite.Create(ctx, &cdiv1.VolumeImportSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tiny"},
			Spec:       cdiv1.VolumeImportSourceSpec{Source: &cdiv1.ImportSourceType{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: root + "/disk.qcow2"}}},
		}, claim, fixture.VM(namespace, "guest", fixture.Claim("root", "root")))

		By("booting from it")
		vmi := suite.RunningVMI(ctx, namespace, "guest")
		Expect(suite.Shell(ctx, vmi, "uname -s")).To(Equal("Linux"))
		Eventually(ctx, func(g Gomega) { // a VM may be faster than what is told of its disk
			g.Expect(suite.World.Client.Get(ctx, key, claim)).To(Succeed())
			g.Expect(claim.Annotations).To(HaveKeyWithValue(population.AnnotationProgress, "100.0%"))
			g.Expect(claim.Annotations).To(HaveKeyWithValue("cdi.kubevirt.io/storage.pod.phase", "Succeeded"))
			g.Expect(claim.Annotations[names.AnnotationDigest]).NotTo(BeEmpty())
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())

		By("looking at what is left")
		Eventually(ctx, func(g Gomega) {
			other := client.ObjectKey{Namespace: namespace, Name: population.PrimeName(claim)}
			for _, object := range []client.Object{&cdiv1.DataVolume{}, &corev1.PersistentVolumeClaim{}} {
				err := suite.World.Client.Get(ctx, other, object)
				g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%T: %v", object, err)
			}
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
	}, SpecTimeout(15*time.Minute))
})
