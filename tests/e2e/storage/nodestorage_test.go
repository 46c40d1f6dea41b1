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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// onClaims is the pool that lies on claims of the cluster's first pool.
var onClaims = hppv1beta1.StoragePool{Name: "onclaims", Path: "/var/hpvolumes", PVCTemplate: &corev1.PersistentVolumeClaimSpec{
	StorageClassName: new(env.StorageClass), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("512Mi")}},
}}

var _ = Describe("node storage", func() {
	It("has a pool on claims of another class, and serves the claims of the provisioner before it", func(ctx context.Context) {
		before := &hppv1beta1.HostPathProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "hostpath-provisioner"}}
		err := suite.World.Client.Get(ctx, client.ObjectKeyFromObject(before), before)
		if suite.World.Existing && apierrors.IsNotFound(err) {
			return // it has other storage
		}
		Expect(err).NotTo(HaveOccurred())
		former := filepath.Join(filepath.Dir(suite.World.Local.PoolPath), "hpvolumes")
		if !suite.World.Existing { // whose nodes have no such directory
			Expect(os.MkdirAll(former, 0o755)).To(Succeed())
			DeferCleanup(func() { Expect(os.RemoveAll(former)).To(Succeed()) })
		}
		storage(ctx, before, func(spec *hppv1beta1.HostPathProvisionerSpec) {
			spec.StoragePools = append(spec.StoragePools, onClaims)
			if !suite.World.Existing {
				spec.PathConfig = &hppv1beta1.PathConfig{Path: former}
			}
		})
		ns := suite.Namespace(ctx) // which goes, with its volumes, before the pools do
		servesOnClaims(ctx, ns)
		if !suite.World.Existing {
			servesFormerClaims(ctx, ns, former)
		}
	}, SpecTimeout(20*time.Minute))
})

// servesOnClaims fills a disk in the pool on claims, and deletes it.
func servesOnClaims(ctx context.Context, ns string) {
	GinkgoHelper()
	inPool := func(dv *cdiv1.DataVolume) {
		dv.Spec.Storage.StorageClassName = new(env.StorageClass + "-" + onClaims.Name)
	}
	suite.Create(ctx, fixture.DataVolume(ns, "on-claim", "256Mi", fixture.HTTP(root+"/disk.qcow2"), inPool))
	dv := suite.DataVolume(ctx, ns, "on-claim", cdiv1.Succeeded)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "on-claim"}}
	Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
	Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(volume), volume)).To(Succeed())
	Expect(volume.Spec.CSI.VolumeAttributes).To(HaveKeyWithValue("storagePool", onClaims.Name))
	if !suite.World.Existing {
		inside, err := filepath.Glob(filepath.Join(suite.World.Local.PoolPath, "pvc-*", volume.Name, "disk.img"))
		Expect(err).NotTo(HaveOccurred())
		Expect(inside).To(HaveLen(1), "the disk is in the claim's volume, which is one of the first pool")
	}
	Expect(suite.World.Client.Delete(ctx, dv)).To(Succeed())
	Expect(suite.World.Gone(ctx, GinkgoWriter, volume, suite.BoundEnd)).To(Succeed())
}

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
	Expect(suite.World.Await(ctx, GinkgoWriter, claim, suite.BoundEnd, func(object client.Object) (string, bool, error) {
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

// storage changes the cluster's node storage, which is before, until the test has ended, and waits until it is ready.
func storage(ctx context.Context, before *hppv1beta1.HostPathProvisioner, change func(*hppv1beta1.HostPathProvisionerSpec)) {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) {
		become(ctx, func(spec *hppv1beta1.HostPathProvisionerSpec) { *spec = before.Spec })
		in, ofPool := client.InNamespace(names.InstallNamespace), client.MatchingLabels{names.LabelStoragePool: onClaims.Label()}
		Eventually(ctx, func(g Gomega) {
			var deployments appsv1.DeploymentList
			g.Expect(suite.World.Client.List(ctx, &deployments, in, ofPool)).To(Succeed())
			g.Expect(deployments.Items).To(BeEmpty())
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
		var claims corev1.PersistentVolumeClaimList
		Expect(suite.World.Client.List(ctx, &claims, in, ofPool)).To(Succeed())
		Expect(claims.Items).NotTo(BeEmpty(), "claims stay with what is in them")
		for i := range claims.Items {
			Expect(suite.World.Client.Delete(ctx, &claims.Items[i])).To(Succeed())
			Expect(suite.World.Gone(ctx, GinkgoWriter, &claims.Items[i], suite.BoundEnd)).To(Succeed())
		}
	}, NodeTimeout(3*suite.BoundEnd))
	become(ctx, change)
}

// become changes the cluster's node storage and waits until it is ready.
func become(ctx context.Context, change func(*hppv1beta1.HostPathProvisionerSpec)) {
	GinkgoHelper()
	object := &hppv1beta1.HostPathProvisioner{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Name: "hostpath-provisioner"}, object)).To(Succeed())
	was := object.DeepCopy()
	change(&object.Spec)
	Expect(suite.World.Client.Patch(ctx, object, client.MergeFrom(was))).To(Succeed())
	generation := object.Generation
	Expect(suite.World.Await(ctx, GinkgoWriter, object, suite.BoundEnd, func(seen client.Object) (string, bool, error) {
		available := meta.FindStatusCondition(seen.(*hppv1beta1.HostPathProvisioner).Status.Conditions, hppv1beta1.ConditionAvailable)
		if available == nil || available.ObservedGeneration < generation {
			return "not seen yet", false, nil
		}
		return fmt.Sprintf("%s: %s", available.Reason, available.Message), available.Reason == "PoolsReady", nil
	})).To(Succeed())
}
