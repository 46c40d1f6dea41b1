package datavolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// manner is how a clone was begun, which is how it goes on.
type manner int

// Manners of clones.
const (
	notBegun manner = iota
	byDriver
	byCopy
)

// way is how far a clone is that is brought from another namespace.
type way struct {
	volume *corev1.PersistentVolume      // nil while it is not marked
	there  *corev1.PersistentVolumeClaim // in the source's namespace; nil when it is not there
}

// onTheWay finds what there is of the clone of source that is to be brought.
func (r *Reconciler) onTheWay(ctx context.Context, s *scope, source *origin) (way, error) {
	var w way
	var err error
	if w.volume, err = r.travelling(ctx, s.dv); err != nil {
		return w, err
	}
	key := types.NamespacedName{Namespace: source.Key().Namespace, Name: cloneName(s.dv.UID)}
	if w.there, err = get(ctx, r.live, key, &corev1.PersistentVolumeClaim{}); err != nil {
		return w, err
	}
	if w.there != nil && w.there.Labels[LabelCloneFor] != string(s.dv.UID) {
		s.waiting = &obstacle{reasonExists, fmt.Sprintf("PVC %s exists already and is none of Slipway's; the clone is made there once it is gone", key)}
		s.result.RequeueAfter = takenRetry
		return w, steps.ErrDone
	}
	return w, nil
}

// manner is how the clone was begun.
func (w way) manner() manner {
	switch {
	case w.there == nil && w.volume == nil:
		return notBegun
	case w.there != nil && isCopy(w.there), w.there == nil && w.volume.Annotations[AnnotationCopiedFrom] != "":
		return byCopy
	}
	return byDriver
}

// settled reports whether it is what it was begun of that the clone will be. A copy that is not whole begins anew when its source is
// another one now.
func (w way) settled() bool {
	return w.manner() == byDriver || w.manner() == byCopy && (w.volume != nil || w.there.Annotations[AnnotationPodPhase] == phaseSucceeded)
}

// source is o as that of which the clone was begun: o may be another disk since, or would be cloned in another manner now.
func (w way) source(o *origin) *origin {
	var from *clonesource.Source
	switch {
	case w.there != nil && isCopy(w.there):
		from = clonesource.FromMark(w.there.Annotations[AnnotationCopiedFrom])
	case w.there != nil:
		from = madeFrom(w.there)
	case w.volume != nil:
		from = clonesource.FromMark(w.volume.Annotations[annotationBroughtFrom])
	}
	if from == nil {
		return o
	}
	before := *o
	before.Source = clonesource.Source{Claim: from.Claim, Snapshot: from.Snapshot, Labels: o.Labels}
	return &before
}

// travelling finds the volume that is on its way to dv, nil when there is none.
func (r *Reconciler) travelling(ctx context.Context, dv *cdiv1.DataVolume) (*corev1.PersistentVolume, error) {
	var volumes corev1.PersistentVolumeList
	if err := r.live.List(ctx, &volumes, client.MatchingLabels{LabelCloneFor: string(dv.UID)}); err != nil {
		return nil, fmt.Errorf("looking for the volume of DataVolume %s: %w", dv.Name, err)
	}
	if len(volumes.Items) == 0 {
		return nil, nil
	}
	return &volumes.Items[0], nil
}

// NodeOf is the node that a volume of Slipway's own node storage is on, "" for other volumes.
func NodeOf(volume *corev1.PersistentVolume) string {
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != names.HostPathDriver || volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == names.TopologyNode && expression.Operator == corev1.NodeSelectorOpIn && len(expression.Values) == 1 {
				return expression.Values[0]
			}
		}
	}
	return ""
}
