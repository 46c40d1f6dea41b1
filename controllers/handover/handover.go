// Package handover takes a volume from the claim that has it to another one, in whichever namespace that is, so that it is
// lost to nobody who is cut off on the way: it is kept and marked before its claim goes, it is some claim's or nobody's
// at each moment, and what it must get back is written on itself.
package handover

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// Marks of a volume that is on its way.
const (
	// annotationReclaim is the reclaim policy that it gets back.
	annotationReclaim = names.Domain + "reclaim-policy"
	// annotationFrom is the uid of the claim that it was taken from; clones were the first to be handed over.
	annotationFrom = names.Domain + "clone-uid"
)

// For says for what a volume is on its way.
type For struct {
	// Label is the volume's label whose value is UID, that of the object for which it is on its way. It finds the volume.
	Label string
	UID   types.UID
	// Notes are further annotations of the volume meanwhile.
	Notes map[string]string
}

// Marked reports whether volume is on its way, for whatever that is.
func Marked(volume *corev1.PersistentVolume) bool { return volume.Annotations[annotationReclaim] != "" }

// Keep marks the volume of claim from, and keeps it whatever becomes of the claim. A volume is marked once: see Marked.
func Keep(ctx context.Context, c client.Client, volume *corev1.PersistentVolume, from *corev1.PersistentVolumeClaim, what For) error {
	before := volume.DeepCopy()
	set(&volume.Labels, map[string]string{what.Label: string(what.UID)})
	set(&volume.Annotations, what.Notes)
	set(&volume.Annotations, map[string]string{
		annotationReclaim: string(volume.Spec.PersistentVolumeReclaimPolicy), annotationFrom: string(from.UID),
	})
	volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	return patch(ctx, c, volume, before, names.ManagerData)
}

// Give makes volume that of claim, as manager. While claim is yet to be created it is reserved for its name, whichever claim of
// that name had it before.
func Give(ctx context.Context, c client.Client, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, manager string) error {
	ref := volume.Spec.ClaimRef
	if ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name && ref.UID == claim.UID {
		return nil
	}
	before := volume.DeepCopy()
	volume.Spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}
	return patch(ctx, c, volume, before, manager)
}

// Settle ends the way of a volume: it gets its reclaim policy back, and loses its marks.
func Settle(ctx context.Context, c client.Client, volume *corev1.PersistentVolume, what For) error {
	return settle(ctx, c, volume, what, func() { restore(volume) })
}

// GiveUp is Settle for a volume of which nothing is wanted any more. Unless it has a claim, the one that it came from is
// named as its owner again: that is gone, so that Kubernetes releases the volume and reclaims it.
func GiveUp(ctx context.Context, c client.Client, volume *corev1.PersistentVolume, what For) error {
	return settle(ctx, c, volume, what, func() {
		ref := volume.Spec.ClaimRef
		if uid := volume.Annotations[annotationFrom]; ref != nil && ref.UID == "" && uid != "" {
			ref.UID = types.UID(uid)
		}
		restore(volume)
	})
}

// Leave removes the marks of a volume that somebody else has taken, and leaves it to him as it is.
func Leave(ctx context.Context, c client.Client, volume *corev1.PersistentVolume, what For) error {
	return settle(ctx, c, volume, what, func() {})
}

func restore(volume *corev1.PersistentVolume) {
	if policy := volume.Annotations[annotationReclaim]; policy != "" {
		volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(policy)
	}
}

// settle removes the marks after a last change.
func settle(ctx context.Context, c client.Client, volume *corev1.PersistentVolume, what For, change func()) error {
	before := volume.DeepCopy()
	change()
	delete(volume.Labels, what.Label)
	for name := range what.Notes {
		delete(volume.Annotations, name)
	}
	delete(volume.Annotations, annotationReclaim)
	delete(volume.Annotations, annotationFrom)
	return patch(ctx, c, volume, before, names.ManagerData)
}

// patch writes what has changed in volume since before, unless another has changed it too.
func patch(ctx context.Context, c client.Client, volume, before *corev1.PersistentVolume, manager string) error {
	err := c.Patch(ctx, volume, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(manager))
	if err != nil {
		return fmt.Errorf("handing over volume %s: %w", volume.Name, err)
	}
	return nil
}

func set(to *map[string]string, from map[string]string) {
	if *to == nil {
		*to = map[string]string{}
	}
	maps.Copy(*to, from)
}
