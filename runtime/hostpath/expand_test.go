//go:build integration

package hostpath_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// TestExpansion runs node storage against a real API server, and claims that ask for more than they have.
func TestExpansion(t *testing.T) {
	n := start(t)
	check(t, n.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "larger"}, Provisioner: names.HostPathDriver, AllowVolumeExpansion: new(true),
		Parameters: map[string]string{"storagePool": "local"}, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}))
	for _, test := range []struct {
		name string
		run  func(*testing.T, node)
	}{
		{"a claim of a block volume gets what it asks for", ofBlockExpanded},
		{"a claim of files gets what it asks for, not rounded", ofFilesExpanded},
		{"what cannot be is said in the claim, until it is taken back", tooLarge},
		{"an expansion that a restart cut short is completed", expandedOverRestart},
		{"a claim of another node is left alone", ofAnotherNodeExpanded},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, n) })
	}
}

func ofBlockExpanded(t *testing.T, n node) {
	claim := n.expandable(t, "block-larger", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) })
	n.ask(t, claim, "2049Mi")
	n.has(t, claim, "2049Mi")
	info, err := os.Stat(filepath.Join(n.pool, claim.Spec.VolumeName))
	if check(t, err); info.Size() != 2049<<20 {
		t.Errorf("the disk has %d bytes", info.Size())
	}
	n.told(t, claim, "VolumeResizeSuccessful", "2049Mi")
}

func ofFilesExpanded(t *testing.T, n node) {
	claim := n.expandable(t, "files-larger", nil)
	n.ask(t, claim, "1500M")
	n.has(t, claim, "1500M")
	clone := n.claim(t, "clone-of-larger", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: claim.Name}
	})
	n.event(t, clone, "smaller than its source") // which is larger now
}

func tooLarge(t *testing.T, n node) {
	claim := n.expandable(t, "too-large", nil)
	n.ask(t, claim, "1Ei")
	n.told(t, claim, "VolumeResizeFailed", "ask for less, or use a larger pool")
	complaint := func() *corev1.PersistentVolumeClaimCondition {
		check(t, n.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		for i := range claim.Status.Conditions {
			if claim.Status.Conditions[i].Type == corev1.PersistentVolumeClaimControllerResizeError {
				return &claim.Status.Conditions[i]
			}
		}
		return nil
	}
	eventually(t, "the claim has a condition that says why", func() bool {
		found := complaint()
		return found != nil && strings.Contains(found.Message, "ask for less")
	})
	n.ask(t, claim, "2Gi")
	n.has(t, claim, "2Gi")
	eventually(t, "the condition is gone", func() bool { return complaint() == nil })
}

func expandedOverRestart(t *testing.T, n node) {
	claim := n.expandable(t, "cut-short", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) })
	n.stop()
	check(t, os.Truncate(filepath.Join(n.pool, claim.Spec.VolumeName), 3<<30)) // and not written down
	n.ask(t, claim, "3Gi")
	defer n.run(t)()
	n.has(t, claim, "3Gi")
	disk, err := os.Stat(filepath.Join(n.pool, claim.Spec.VolumeName))
	if check(t, err); disk.Size() != 3<<30 {
		t.Errorf("the disk has %d bytes", disk.Size())
	}
}

func ofAnotherNodeExpanded(t *testing.T, n node) {
	defer n.run(t)()
	here := n.expandable(t, "here-larger", nil)
	volume := &corev1.PersistentVolume{}
	check(t, n.Get(t.Context(), client.ObjectKey{Name: here.Spec.VolumeName}, volume))
	far := n.claim(t, "far-larger", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName, c.Spec.VolumeName, c.Annotations = new("larger"), "far-larger", nil
	})
	elsewhere := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "far-larger"}, Spec: *volume.Spec.DeepCopy()}
	elsewhere.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: far.Namespace, Name: far.Name, UID: far.UID}
	elsewhere.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node-2"}
	check(t, n.Create(t.Context(), elsewhere))
	far.Status.Phase, far.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	check(t, n.Status().Update(t.Context(), far))
	n.ask(t, far, "2Gi")
	n.ask(t, here, "2Gi")
	n.has(t, here, "2Gi") // which comes after, and is done
	check(t, n.Get(t.Context(), client.ObjectKeyFromObject(far), far))
	if size := far.Status.Capacity.Storage().String(); size != "1Gi" || len(far.Status.Conditions) != 0 {
		t.Errorf("the claim of the other node has %s and %v", size, far.Status.Conditions)
	}
}

// expandable makes a claim of 1 GiB that is bound and may grow.
func (n node) expandable(t *testing.T, name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := n.claim(t, name, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName = new("larger")
		if change != nil {
			change(c)
		}
	})
	volume := n.volumeOf(t, claim)
	claim = n.bind(t, claim)
	volume.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	check(t, n.Update(t.Context(), volume))
	claim.Status.Capacity = volume.Spec.Capacity
	check(t, n.Status().Update(t.Context(), claim))
	return claim
}

// ask makes a claim ask for another size.
func (n node) ask(t *testing.T, claim *corev1.PersistentVolumeClaim, size string) {
	t.Helper()
	check(t, n.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	before := claim.DeepCopy()
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	check(t, n.Patch(t.Context(), claim, client.MergeFrom(before)))
}

// has waits until a claim and its volume have a size.
func (n node) has(t *testing.T, claim *corev1.PersistentVolumeClaim, size string) {
	t.Helper()
	want := resource.MustParse(size)
	eventually(t, "claim "+claim.Name+" has "+size, func() bool {
		check(t, n.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		return claim.Status.Capacity.Storage().Cmp(want) == 0 && claim.Status.AllocatedResources.Storage().Cmp(want) == 0
	})
	volume := &corev1.PersistentVolume{}
	check(t, n.Get(t.Context(), client.ObjectKey{Name: claim.Spec.VolumeName}, volume))
	if volume.Spec.Capacity.Storage().Cmp(want) != 0 {
		t.Errorf("the volume has %s", volume.Spec.Capacity.Storage())
	}
}

// told waits for an event about a claim.
func (n node) told(t *testing.T, claim *corev1.PersistentVolumeClaim, reason, text string) {
	t.Helper()
	var events eventsv1.EventList
	eventually(t, "claim "+claim.Name+" has an event "+reason+" with "+text, func() bool {
		check(t, n.List(t.Context(), &events, client.InNamespace(claim.Namespace)))
		for _, event := range events.Items {
			if event.Regarding.UID == claim.UID && event.Reason == reason && strings.Contains(event.Note, text) {
				return true
			}
		}
		return false
	})
}
