//go:build e2e

package storage

import (
	"context"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a StorageProfile that wants snapshots", func() {
	It("has images kept as snapshots, and claims cloned through them", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		class := snapshotting(ctx)
		template := fixture.DataVolume(ns, "", "256Mi", fixture.HTTP(root+"/disk.qcow2"))
		template.Spec.Storage.StorageClassName = &class
		suite.Create(ctx, &cdiv1.DataImportCron{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "golden"},
			Spec: cdiv1.DataImportCronSpec{
				Schedule: "@daily", ManagedDataSource: "golden", Template: cdiv1.DataVolume{Spec: template.Spec},
			},
		})
		source := &cdiv1.DataSource{}
		Eventually(ctx, func(g Gomega) {
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "golden"}, source)).To(Succeed())
			g.Expect(source.Spec.Source.Snapshot).NotTo(BeNil(), "DataSource: %+v", source.Spec)
			g.Expect(source.Spec.Source.PVC).To(BeNil())
			g.Expect(source.Status.Conditions).To(ContainElement(HaveField("ConditionState.Reason", "Ready")))
		}).WithTimeout(suite.BoundImport).WithPolling(time.Second).Should(Succeed())
		imported := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: source.Spec.Source.Snapshot.Name}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, imported, suite.BoundEnd)).To(Succeed())

		first := fixture.DataVolume(ns, "first", "256Mi", func(dv *cdiv1.DataVolume) {
			dv.Spec.Source, dv.Spec.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "golden"}
		})
		second := fixture.DataVolume(ns, "second", "256Mi", fixture.CloneOf(ns, "first"))
		for _, dv := range []*cdiv1.DataVolume{first, second} {
			dv.Spec.Storage.StorageClassName, dv.Spec.Storage.Resources.Requests = &class, nil
			suite.Create(ctx, dv)
			suite.DataVolume(ctx, ns, dv.Name, cdiv1.Succeeded)
		}
		through := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "clone-" + string(second.UID)}}
		Expect(suite.World.Gone(ctx, GinkgoWriter, through, suite.BoundEnd)).To(Succeed())
		suite.Create(ctx, fixture.VM(ns, "guest", fixture.Claim("root", "second")))
		Expect(suite.Shell(ctx, suite.RunningVMI(ctx, ns, "guest"), "uname -s")).To(Equal("Linux"))
	}, SpecTimeout(20*time.Minute))
})

// snapshotting makes a StorageClass of the pool that all tests use, whose StorageProfile wants snapshots.
func snapshotting(ctx context.Context) string {
	GinkgoHelper()
	class := another(ctx, "snapshotting-")
	profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: class.Name}}
	wanted := []byte(`{"spec":{"cloneStrategy":"snapshot","dataImportCronSourceFormat":"snapshot"}}`)
	Eventually(ctx, func(g Gomega) {
		g.Expect(suite.World.Client.Patch(ctx, profile, client.RawPatch("application/merge-patch+json", wanted))).To(Succeed())
		g.Expect(profile.Status.SnapshotClass).NotTo(BeNil(), "StorageProfile: %+v", profile.Status)
		g.Expect(profile.Status.CloneStrategy).To(HaveValue(Equal(cdiv1.CloneStrategySnapshot)))
	}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
	return class.Name
}

// another makes a StorageClass of the pool that all tests use.
func another(ctx context.Context, prefix string) *storagev1.StorageClass {
	GinkgoHelper()
	like := &storagev1.StorageClass{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Name: env.StorageClass}, like)).To(Succeed())
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}, Provisioner: like.Provisioner, Parameters: like.Parameters,
		VolumeBindingMode: like.VolumeBindingMode, AllowedTopologies: like.AllowedTopologies,
	}
	suite.Create(ctx, class)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, class))).To(Succeed())
	})
	return class
}
