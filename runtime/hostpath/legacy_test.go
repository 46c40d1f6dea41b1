//go:build integration

package hostpath_test

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
)

// TestLegacyVolumes runs node storage against a real API server, with the directory of the provisioner
// before the driver.
func TestLegacyVolumes(t *testing.T) {
	n := start(t)
	old := filepath.Join(t.TempDir(), "hpvolumes")
	check(t, os.Mkdir(old, 0o755))
	for name, mode := range map[string]storagev1.VolumeBindingMode{"old-at-once": storagev1.VolumeBindingImmediate, "old": storagev1.VolumeBindingWaitForFirstConsumer} {
		check(t, n.Create(t.Context(), &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: names.LegacyHostPathDriver, VolumeBindingMode: &mode,
		}))
	}
	leftAlone(t, n)
	var object hppv1beta1.HostPathProvisioner
	check(t, n.Get(t.Context(), client.ObjectKey{Name: "hpp"}, &object))
	object.Spec.PathConfig = &hppv1beta1.PathConfig{Path: old, UseNamingPrefix: true}
	check(t, n.Update(t.Context(), &object))
	legacyProvisioned(t, n, old)
	legacyVolumeDeleted(t, n, old)
	legacyPool(t, n, old)
}

// leftAlone shows that without pathConfig another program may serve such claims.
func leftAlone(t *testing.T, n node) {
	t.Helper()
	claim := n.claim(t, "not-ours", func(c *corev1.PersistentVolumeClaim) { onOld(c, "old") })
	n.volumeOf(t, n.claim(t, "ours", nil)) // which comes after, and is done
	if err := n.Get(t.Context(), client.ObjectKey{Name: volumeName(claim)}, &corev1.PersistentVolume{}); !apierrors.IsNotFound(err) {
		t.Errorf("the claim has a volume: %v", err)
	}
	check(t, n.Delete(t.Context(), claim))
}

func legacyProvisioned(t *testing.T, n node, old string) {
	t.Helper()
	for name, claim := range map[string]*corev1.PersistentVolumeClaim{
		"chosen by the scheduler": n.claim(t, "chosen", func(c *corev1.PersistentVolumeClaim) { onOld(c, "old") }),
		"that names its node": n.claim(t, "named", func(c *corev1.PersistentVolumeClaim) {
			onOld(c, "old-at-once")
			delete(c.Annotations, "volume.kubernetes.io/selected-node")
			c.Annotations[names.AnnotationProvisionOnNode] = "node-1"
		}),
	} {
		volume := n.volumeOf(t, claim)
		at := filepath.Join(old, claim.Name+"-"+volume.Name)
		if volume.Spec.HostPath == nil || volume.Spec.HostPath.Path != at || volume.Annotations["pv.kubernetes.io/provisioned-by"] != names.LegacyHostPathDriver {
			t.Errorf("the volume of a claim %s is %+v", name, volume)
		}
		if _, err := os.Stat(at); err != nil {
			t.Error(err)
		}
	}
	block := n.claim(t, "block", func(c *corev1.PersistentVolumeClaim) {
		onOld(c, "old")
		c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	})
	n.event(t, block, "cannot be a block device")
}

// legacyVolumeDeleted has a volume go that the former program made, and says why one stays that nobody made so.
func legacyVolumeDeleted(t *testing.T, n node, old string) {
	t.Helper()
	made := func(name, path string) *corev1.PersistentVolume {
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
				"hostPathProvisionerIdentity": names.LegacyHostPathDriver, names.AnnotationProvisionOnNode: "node-1", "pv.kubernetes.io/provisioned-by": names.LegacyHostPathDriver,
			}},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}},
				}}}},
			},
		}
		check(t, os.MkdirAll(path, 0o777))
		check(t, n.Create(t.Context(), volume))
		volume.Status.Phase = corev1.VolumeReleased
		check(t, n.Status().Update(t.Context(), volume))
		return volume
	}
	elsewhere := filepath.Join(t.TempDir(), "pvc-elsewhere")
	stays, goes := made("pvc-elsewhere", elsewhere), made("pvc-before", filepath.Join(old, "pvc-before"))
	eventually(t, "the volume and its directory are gone", func() bool {
		_, err := os.Stat(goes.Spec.HostPath.Path)
		check(t, client.IgnoreNotFound(n.Get(t.Context(), client.ObjectKeyFromObject(goes), goes)))
		return os.IsNotExist(err) && goes.DeletionTimestamp != nil
	})
	n.volumeEvent(t, stays, "is no directory that the provisioner makes")
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
}

// legacyPool shows that the driver has a pool beside the old volumes.
func legacyPool(t *testing.T, n node, old string) {
	t.Helper()
	check(t, n.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "hostpath-csi-legacy"}, Provisioner: names.HostPathDriver,
		Parameters: map[string]string{"storagePool": "legacy"}, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}))
	volume := n.volumeOf(t, n.claim(t, "beside", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("hostpath-csi-legacy") }))
	if _, err := os.Stat(filepath.Join(old, "csi", volume.Name)); err != nil {
		t.Error(err)
	}
}

// onOld makes a claim one of the former provisioner's.
func onOld(claim *corev1.PersistentVolumeClaim, class string) {
	claim.Spec.StorageClassName = &class
	claim.Annotations["volume.kubernetes.io/storage-provisioner"] = names.LegacyHostPathDriver
}
