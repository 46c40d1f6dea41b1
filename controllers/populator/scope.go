package populator

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
)

// errStale ends a pass that has read from the cache what is not so any more. Nothing that it found
// is written; another pass follows soon.
var errStale = errors.New("the cache lags behind")

// scope is what one pass over a claim has found.
type scope struct {
	claim *corev1.PersistentVolumeClaim
	// kind is the source's. By read.
	kind string
	// class is the claim's, nil while it has none or that does not exist. By read.
	class *storagev1.StorageClass
	// prime is the DataVolume that fills the claim or its other one, nil while there is none. By
	// read, or made by ensurePrime.
	prime *cdiv1.DataVolume
	// other is the claim of prime, whose volume the claim gets; nil while there is none, and in place. By read.
	other *corev1.PersistentVolumeClaim
	// chosen says that it is decided how the claim is filled; inPlace is that. By read, or choose.
	chosen, inPlace bool
	// waiting says what the claim waits for; refused that it is not filled as it is.
	waiting *obstacle
	refused bool
	// whole says that the claim's volume is, so that it can be its. By handOver.
	whole bool
	// node is the one of Slipway's own storage that the volume is on. By handOver.
	node string
	// quiet says that nothing is to be noted. By steps that end the pass.
	quiet  bool
	result ctrl.Result
}

// obstacle is what stands in the way of a claim.
type obstacle struct{ reason, message string }

// refuse says why the claim is not filled as it is, and ends the pass.
func (s *scope) refuse(reason, message string) error {
	s.waiting, s.refused = &obstacle{reason, message}, true
	return steps.ErrDone
}

// ofDataVolume reports whether a DataVolume fills the claim by itself, such as one of CDI's from before.
func (r *Reconciler) ofDataVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	by := metav1.GetControllerOf(claim)
	if by == nil || by.Kind != kindDataVolume {
		return false, nil
	}
	dv, err := get(ctx, r.Client, types.NamespacedName{Namespace: claim.Namespace, Name: by.Name}, &cdiv1.DataVolume{})
	return dv != nil && (dv.Spec.Source != nil || dv.Spec.SourceRef != nil), err
}

// read gathers what there is. It decides nothing.
func (r *Reconciler) read(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*scope, error) {
	s := &scope{
		claim: claim, kind: population.Source(claim),
		chosen: population.Chosen(claim), inPlace: population.InPlace(claim),
	}
	key := types.NamespacedName{Namespace: claim.Namespace, Name: population.PrimeName(claim)}
	var err error
	if s.prime, err = get(ctx, r.Client, key, &cdiv1.DataVolume{}); err != nil {
		return nil, err
	}
	if s.prime != nil && !metav1.IsControlledBy(s.prime, claim) {
		s.prime, s.waiting = nil, &obstacle{reasonExists, fmt.Sprintf("DataVolume %s exists already and is none of Slipway's; the claim is filled once it is gone", key.Name)}
	}
	if s.prime != nil && !s.inPlace {
		if s.other, err = get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{}); err != nil {
			return nil, err
		}
		if s.other != nil && !metav1.IsControlledBy(s.other, s.prime) {
			s.other = nil // of another; the DataVolume says so
		}
	}
	if name := claim.Spec.StorageClassName; name != nil && *name != "" {
		if s.class, err = get(ctx, r.Client, types.NamespacedName{Name: *name}, &storagev1.StorageClass{}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// get reads an object, or returns nil when there is none.
func get[T client.Object](ctx context.Context, c client.Reader, key types.NamespacedName, into T) (T, error) {
	var none T
	if err := c.Get(ctx, key, into); apierrors.IsNotFound(err) {
		return none, nil
	} else if err != nil {
		return none, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return into, nil
}

// recorded reports whether it is noted on the claim that its disk is whole.
func (s *scope) recorded() bool {
	return s.chosen && s.claim.Annotations[datavolume.AnnotationPodPhase] == phaseSucceeded
}

// bound reports whether the claim has a volume.
func (s *scope) bound() bool { return s.claim.Spec.VolumeName != "" }

// phase is that of the DataVolume, empty while there is none.
func (s *scope) phase() cdiv1.DataVolumePhase {
	if s.prime == nil {
		return cdiv1.PhaseUnset
	}
	return s.prime.Status.Phase
}

// waitsForConsumer reports whether the claim's class binds it only where a pod uses it, and none does.
func (s *scope) waitsForConsumer() bool {
	return s.class != nil && s.class.VolumeBindingMode != nil && *s.class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer &&
		s.claim.Annotations[annotationSelectedNode] == "" && !immediate(s.claim)
}
