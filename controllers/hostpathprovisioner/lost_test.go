//go:build integration

package hostpathprovisioner_test

import (
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
)

func claimIsLost(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	object := create(t, c, "hpp", onClaims("fast", "san"))
	claim, _ := held(t, c, "fast", "a")
	held(t, c, "fast", "b")
	volume := volumeIn(t, c, "fast", "a")
	check(t, c.Delete(t.Context(), claim))
	degraded(t, c, object, "ClaimLost", "hpp-pool-fast-a of storage pool fast is being deleted and goes when its pod does, with volumes such as in-fast")
	unprotected(t, c, claim)
	degraded(t, c, object, "ClaimLost", "hpp-pool-fast-a of storage pool fast is gone, and held volumes such as in-fast")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); !apierrors.IsNotFound(err) {
		t.Errorf("an empty claim is in the place of the one that held volumes: %v", err)
	}
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(volume), volume))
	volume.Status.Phase = corev1.VolumeReleased
	check(t, c.Status().Update(t.Context(), volume))
	nudge(t, c)
	again, _ := held(t, c, "fast", "a")
	condition(t, c, object, hppv1beta1.ConditionProgressing, "ClaimsNotMounted")
	again.Status.Phase = corev1.ClaimLost
	check(t, c.Status().Update(t.Context(), again))
	degraded(t, c, object, "ClaimLost", "hpp-pool-fast-a of storage pool fast lost its volume")
	removed(t, c, volume)
}

// emptyClaimGoes shows that a claim which nothing is in can be deleted, and is made anew.
func emptyClaimGoes(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	create(t, c, "hpp", onClaims("fast", "san"))
	claim, _ := held(t, c, "fast", "a")
	held(t, c, "fast", "b")
	check(t, c.Delete(t.Context(), claim))
	eventually(t, "what holds the claim lets it go", func() bool { return deployments(t, c) == 1 })
	unprotected(t, c, claim)
	if again, _ := held(t, c, "fast", "a"); again.UID == claim.UID {
		t.Error("it is the former claim")
	}
}

// emptyClaimGoesForGood deletes claims while the object waits for a volume in one of them.
func emptyClaimGoesForGood(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	object := create(t, c, "hpp", onClaims("fast", "san"))
	empty, _ := held(t, c, "fast", "a")
	claim, _ := held(t, c, "fast", "b")
	volume := volumeIn(t, c, "fast", "b")
	before := volume.DeepCopy()
	metav1.SetMetaDataAnnotation(&volume.ObjectMeta, "pv.kubernetes.io/provisioned-by", names.HostPathDriver)
	check(t, c.Patch(t.Context(), volume, client.MergeFrom(before)))
	volume.Status.Phase = corev1.VolumeReleased
	check(t, c.Status().Update(t.Context(), volume))
	check(t, c.Delete(t.Context(), object))
	condition(t, c, object, hppv1beta1.ConditionProgressing, "VolumesExist")
	check(t, c.Delete(t.Context(), empty))
	eventually(t, "what holds the empty claim lets it go", func() bool { return deployments(t, c) == 1 })
	unprotected(t, c, empty)
	eventually(t, "the object does without the claim", func() bool {
		pool := read(t, c, object).Status.StoragePoolStatuses[0]
		return pool.DesiredReady == 1 && len(pool.ClaimStatuses) == 1
	})
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(empty), empty); !apierrors.IsNotFound(err) || deployments(t, c) != 1 {
		t.Errorf("there is a claim again, or what holds it: %v", err)
	}
	check(t, c.Delete(t.Context(), claim))
	unprotected(t, c, claim)
	eventually(t, "there is a claim by which the volume can be deleted", func() bool {
		again := &corev1.PersistentVolumeClaim{}
		return c.Get(t.Context(), client.ObjectKeyFromObject(claim), again) == nil && again.UID != claim.UID
	})
	removed(t, c, volume)
}

func directoryIsForgotten(t *testing.T, c client.Client) {
	t.Helper()
	object := create(t, c, "hpp", pool("local"), pool("fast"))
	condition(t, c, object, hppv1beta1.ConditionAvailable, "PoolsReady")
	volume := volumeIn(t, c, "fast", "a")
	less := func(spec *hppv1beta1.HostPathProvisionerSpec) { spec.StoragePools = spec.StoragePools[:1] }
	change(t, c, less)
	degraded(t, c, object, "VolumesExist", "storage pool fast is not asked for any more and has volumes, such as in-fast")
	change(t, c, func(spec *hppv1beta1.HostPathProvisionerSpec) {
		spec.StoragePools = append(spec.StoragePools, pool("fast"))
	})
	condition(t, c, object, hppv1beta1.ConditionAvailable, "PoolsReady")
	change(t, c, less)
	degraded(t, c, object, "VolumesExist", "name it again")
	removed(t, c, volume)
	nudge(t, c)
	condition(t, c, object, hppv1beta1.ConditionAvailable, "PoolsReady")
	eventually(t, "one pool is left", func() bool { return len(read(t, c, object).Status.StoragePoolStatuses) == 1 })
}

// nodeLeaves shows what becomes of a claim on a node that is deselected, with a snapshot in it, and of one whose node is gone.
func nodeLeaves(t *testing.T, c client.Client) {
	t.Helper()
	nodes(t, c)
	object := create(t, c, "hpp", onClaims("fast", "san"))
	held(t, c, "fast", "a")
	claim, _ := held(t, c, "fast", "b")
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "in-fast", Labels: map[string]string{"snapshot.storage.kubernetes.io/managed-by": "a"}},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: names.HostPathDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "default", Name: "kept"}, Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: new("gone")},
		},
	}
	check(t, c.Create(t.Context(), content))
	change(t, c, func(spec *hppv1beta1.HostPathProvisionerSpec) {
		spec.Workload.NodeSelector = map[string]string{corev1.LabelHostname: "b"}
	})
	condition(t, c, object, hppv1beta1.ConditionProgressing, "VolumesExist")
	check(t, c.Delete(t.Context(), content))
	nudge(t, c)
	eventually(t, "what held the claim of the node that was deselected is gone", func() bool { return deployments(t, c) == 1 })
	volume := volumeIn(t, c, "fast", "b")
	check(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}))
	eventually(t, "what held the claim of the node that is gone is gone", func() bool { return deployments(t, c) == 0 })
	if check(t, c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)); claim.DeletionTimestamp != nil {
		t.Error("the claim goes with its data")
	}
	condition(t, c, object, hppv1beta1.ConditionAvailable, "PoolsReady")
	removed(t, c, volume)
}

// degraded waits for what needs a person.
func degraded(t *testing.T, c client.Client, object *hppv1beta1.HostPathProvisioner, reason, message string) {
	t.Helper()
	eventually(t, "it is degraded: "+message, func() bool {
		found := meta.FindStatusCondition(read(t, c, object).Status.Conditions, hppv1beta1.ConditionDegraded)
		return found != nil && found.Status == metav1.ConditionTrue && found.Reason == reason && strings.Contains(found.Message, message)
	})
}

// volumeIn makes a volume in-fast of a pool on a node.
func volumeIn(t *testing.T, c client.Client, pool, node string) *corev1.PersistentVolume {
	t.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "in-fast"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: names.HostPathDriver, VolumeHandle: "in-fast", VolumeAttributes: map[string]string{"storagePool": pool},
		}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: names.TopologyNode, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}},
	}}
	check(t, c.Create(t.Context(), volume))
	return volume
}

// removed deletes a volume, as its driver does after its data.
func removed(t *testing.T, c client.Client, volume *corev1.PersistentVolume) {
	t.Helper()
	unprotected(t, c, volume)
	check(t, c.Delete(t.Context(), volume))
}

// unprotected takes the finalizers away by which Kubernetes protects what is in use.
func unprotected(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	check(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	object.SetFinalizers(nil)
	check(t, c.Update(t.Context(), object))
}

// nudge has the controller look at once, as it does now and then, at what it does not watch.
func nudge(t *testing.T, c client.Client) {
	t.Helper()
	first := class(t, c, "hostpath-csi")
	before := first.DeepCopy()
	metav1.SetMetaDataAnnotation(&first.ObjectMeta, "nudged", time.Now().String())
	check(t, c.Patch(t.Context(), first, client.MergeFrom(before)))
}
