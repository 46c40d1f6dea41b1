//go:build e2e

package storage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("node storage", func() {
	It("has a pool on claims of another class, and serves the claims of the provisioner before it", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		former := filepath.Join(filepath.Dir(suite.World.Local.PoolPath), "hpvolumes")
		storage(ctx, func(spec *hppv1beta1.HostPathProvisionerSpec) {
			spec.StoragePools = append(spec.StoragePools, hppv1beta1.StoragePool{Name: "onclaims", Path: "/var/hpvolumes", PVCTemplate: &corev1.PersistentVolumeClaimSpec{
				StorageClassName: new(env.StorageClass), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("512Mi")}},
			}})
			if !suite.World.Existing { // whose nodes have no such directory
				Expect(os.MkdirAll(former, 0o755)).To(Succeed())
				spec.PathConfig = &hppv1beta1.PathConfig{Path: former}
			}
		})
		class := func(name string) fixture.DataVolumeOption {
			return func(dv *cdiv1.DataVolume) { dv.Spec.Storage.StorageClassName = &name }
		}
		suite.Create(ctx, fixture.DataVolume(ns, "on-claim", "256Mi", fixture.HTTP(root+"/disk.qcow2"), class(env.StorageClass+"-onclaims")))
		suite.DataVolume(ctx, ns, "on-claim", cdiv1.Succeeded)
		if !suite.World.Existing {
			servesFormerClaims(ctx, ns, former)
		}
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "on-claim"}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: dv.ObjectMeta}
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
		Expect(suite.World.Client.Delete(ctx, dv)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, volume, suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(10*time.Minute))
})

// servesFormerClaims provisions a claim that names its node, without a pod, and deletes it.
func servesFormerClaims(ctx context.Context, ns, former string) {
	GinkgoHelper()
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "former-"}, Provisioner: names.LegacyHostPathDriver, VolumeBindingMode: &mode}
	suite.Create(ctx, class)
	DeferCleanup(func(ctx context.Context) { Expect(suite.World.Client.Delete(ctx, class)).To(Succeed()) })
	var nodes corev1.NodeList
	Expect(suite.World.Client.List(ctx, &nodes)).To(Succeed())
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "former", Annotations: map[string]string{names.AnnotationProvisionOnNode: nodes.Items[0].Name}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class.Name,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	}
	suite.Create(ctx, claim)
	Expect(suite.World.Await(ctx, GinkgoWriter, claim, time.Minute, func(object client.Object) (string, bool, error) {
		claim = object.(*corev1.PersistentVolumeClaim)
		return string(claim.Status.Phase), claim.Status.Phase == corev1.ClaimBound, nil
	})).To(Succeed())
	volume := &corev1.PersistentVolume{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume)).To(Succeed())
	Expect(volume.Spec.HostPath.Path).To(Equal(filepath.Join(former, volume.Name)))
	Expect(volume.Spec.HostPath.Path).To(BeADirectory())
	Expect(suite.World.Client.Delete(ctx, claim)).To(Succeed())
	Expect(suite.World.Gone(ctx, GinkgoWriter, volume, suite.BoundEnd)).To(Succeed())
	Expect(volume.Spec.HostPath.Path).NotTo(BeADirectory())
}

// storage changes the cluster's node storage until the test has ended, and waits until it is ready.
func storage(ctx context.Context, change func(*hppv1beta1.HostPathProvisionerSpec)) {
	GinkgoHelper()
	set := func(ctx context.Context, change func(*hppv1beta1.HostPathProvisionerSpec)) {
		GinkgoHelper()
		object := &hppv1beta1.HostPathProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "hostpath-provisioner"}}
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		before := object.DeepCopy()
		change(&object.Spec)
		Expect(suite.World.Client.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
		Expect(suite.World.Await(ctx, GinkgoWriter, object, 2*time.Minute, func(seen client.Object) (string, bool, error) {
			found := seen.(*hppv1beta1.HostPathProvisioner)
			available := meta.FindStatusCondition(found.Status.Conditions, hppv1beta1.ConditionAvailable)
			if available == nil || available.ObservedGeneration < object.Generation {
				return "not seen yet", false, nil
			}
			return fmt.Sprintf("%s: %s", available.Reason, available.Message), available.Reason == "PoolsReady", nil
		})).To(Succeed())
	}
	former := &hppv1beta1.HostPathProvisioner{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Name: "hostpath-provisioner"}, former)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		set(ctx, func(spec *hppv1beta1.HostPathProvisionerSpec) { *spec = former.Spec })
		in, ofPools := client.InNamespace(names.InstallNamespace), client.HasLabels{names.LabelStoragePool}
		var left appsv1.DeploymentList
		Expect(suite.World.Client.List(ctx, &left, in, ofPools)).To(Succeed())
		Expect(left.Items).To(BeEmpty())
		Expect(suite.World.Client.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, in, ofPools)).To(Succeed())
	}, NodeTimeout(3*time.Minute))
	set(ctx, change)
}
