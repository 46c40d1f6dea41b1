package datavolume

import (
	"context"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
)

// origin is what a clone is made from: a claim, or a snapshot of one.
type origin struct {
	clonesource.Source
	// mode is the volume's; empty when it is not known.
	mode corev1.PersistentVolumeMode
	// access are a claim's access modes; none are known of a snapshot.
	access []corev1.PersistentVolumeAccessMode
	// class is the StorageClass of a claim, which its clone has too unless it is a copy; nil when it is not known.
	class *string
	// driver of a snapshot is what the clone's class has as its provisioner unless it is a copy.
	driver string
	// uid and digest are a claim's, and its content's; no digest where that is not known.
	uid    types.UID
	digest string
	// size is the least that the clone must ask for.
	size resource.Quantity
	// fits says that the size is that of a clone which there is: a copy's, too, with what its file system needs.
	fits bool
	// bound says that a claim has a volume, and files that this holds files and no disk. Nothing can clone what is driverless.
	bound, files, driverless bool
}

// originOf is a claim as what a clone is made from.
func originOf(claim *corev1.PersistentVolumeClaim) *origin {
	o := &origin{
		Source: clonesource.Source{Claim: client.ObjectKeyFromObject(claim)},
		mode:   volumeMode(claim.Spec), access: claim.Spec.AccessModes, class: claim.Spec.StorageClassName, size: *claim.Status.Capacity.Storage(),
		uid: claim.UID, digest: claim.Annotations[names.AnnotationDigest],
		bound: claim.Status.Phase == corev1.ClaimBound, files: claim.Annotations[AnnotationContentType] == string(cdiv1.DataVolumeArchive),
	}
	if o.size.IsZero() {
		o.size = *claim.Spec.Resources.Requests.Storage()
	}
	return o
}

// reference names the origin in the dataSource of a claim of its namespace.
func (o *origin) reference() *corev1.TypedLocalObjectReference {
	if o.InSnapshot() {
		return &corev1.TypedLocalObjectReference{APIGroup: new(snapshotv1.GroupName), Kind: kindSnapshot, Name: o.Snapshot.Name}
	}
	return &corev1.TypedLocalObjectReference{Kind: kindClaim, Name: o.Claim.Name}
}

// originOfClaim is what the DataVolume's claim is made from, nil when that is nothing or not known.
func (s *scope) originOfClaim() *clonesource.Source {
	if !s.plan.clones() || s.claim == nil {
		return nil
	}
	if from := clonesource.FromMark(s.claim.Annotations[annotationBroughtFrom]); from != nil && mayBring(s.dv, from) {
		return from
	}
	return madeFrom(s.claim)
}

// madeFrom is what a claim's dataSource names, nil when it has none.
func madeFrom(claim *corev1.PersistentVolumeClaim) *clonesource.Source {
	from := claim.Spec.DataSource
	if from == nil {
		return nil
	}
	key := types.NamespacedName{Namespace: claim.Namespace, Name: from.Name}
	if from.Kind == kindSnapshot {
		return &clonesource.Source{Snapshot: key}
	}
	return &clonesource.Source{Claim: key}
}

// mayBring reports whether a clone of source may have been brought for dv: what is noted on a claim, anyone may write
// who may change that, what admission noted on the DataVolume only admission.
func mayBring(dv *cdiv1.DataVolume, source *clonesource.Source) bool {
	allowed := clonesource.FromMark(dv.Annotations[clonesource.AnnotationAuthorized])
	if allowed == nil {
		return false
	}
	through := types.NamespacedName{Namespace: allowed.Key().Namespace, Name: cloneName(dv.UID)}
	return source.Mark() == allowed.Mark() || source.InSnapshot() && source.Snapshot == through
}

// restores reports whether a snapshot is cloned.
func (s *scope) restores() bool {
	if s.claim == nil {
		return s.origin != nil && s.origin.InSnapshot()
	}
	from := s.originOfClaim()
	return from != nil && from.InSnapshot()
}

// nodesOf places a clone of a node's volume onto that node; nil where any node will do.
func (r *Reconciler) nodesOf(ctx context.Context, from *clonesource.Source) (*corev1.NodeAffinity, error) {
	switch {
	case from == nil:
		return nil, nil
	case from.InSnapshot():
		return r.nodeOfSnapshot(ctx, from.Snapshot)
	}
	return r.affinityOf(ctx, from.Claim)
}
