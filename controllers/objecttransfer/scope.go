package objecttransfer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/handover"
)

// scope is what one pass over a transfer has found. All of it is read past the cache.
type scope struct {
	ot  *cdiv1.ObjectTransfer
	rec *record // what is moved; nil while it is not recorded

	dv     *cdiv1.DataVolume             // by findSource: the source, where it is a DataVolume
	claim  *corev1.PersistentVolumeClaim // by findSource: the source, or its claim
	volume *corev1.PersistentVolume      // by checkVolume or findVolume

	goal types.NamespacedName          // by findTarget: where it goes; where it came from, when it goes back
	made *corev1.PersistentVolumeClaim // by findTarget or makeClaim: the claim there that has the volume; nil while there is none
	next *cdiv1.DataVolume             // by makeDataVolume: the DataVolume there

	obstacle *obstacle
	failure  error // what the pass has met; it is tried again
	begun    bool  // by record: from now on it runs
	done     bool  // by finish
	released bool  // by release: it is nobody's business any more
}

// newScope begins with what the transfer itself says.
func newScope(ot *cdiv1.ObjectTransfer) (*scope, error) {
	s := &scope{ot: ot}
	if ot.Status.Phase != cdiv1.ObjectTransferRunning && ot.Status.Phase != cdiv1.ObjectTransferError || len(ot.Status.Data) == 0 {
		if ot.Status.Phase == cdiv1.ObjectTransferRunning {
			return s, fail(sayError, "status.data is gone, which says what is moved; the volume is kept, and has label %s=%s", LabelFor, ot.UID)
		}
		return s, nil
	}
	rec, err := readRecord(ot.Spec.Source.Kind, ot.Status.Data)
	if err != nil && ended(ot) {
		return s, nil //nolint:nilerr // it has failed for that
	}
	if err != nil {
		return s, fail(sayError, "%v", err)
	}
	s.rec = rec
	return s, nil
}

// ofDataVolume reports whether a DataVolume is moved, not a claim alone.
func (s *scope) ofDataVolume() bool { return s.ot.Spec.Source.Kind == kindDataVolume }

// way is what the volume is marked with.
func (s *scope) way() handover.For {
	return handover.For{Label: LabelFor, UID: s.ot.UID, Notes: map[string]string{annotationFor: s.ot.Name}}
}

// marked reports whether the volume is on its way for this transfer.
func (s *scope) marked() bool { return s.volume.Labels[LabelFor] == string(s.ot.UID) }

func sourceOf(ot *cdiv1.ObjectTransfer) types.NamespacedName {
	return types.NamespacedName{Namespace: ot.Spec.Source.Namespace, Name: ot.Spec.Source.Name}
}

// Target is where a transfer goes: what its target does not say is as in its source.
func Target(spec *cdiv1.ObjectTransferSpec) types.NamespacedName {
	key := types.NamespacedName{Namespace: spec.Source.Namespace, Name: spec.Source.Name}
	if namespace := spec.Target.Namespace; namespace != nil {
		key.Namespace = *namespace
	}
	if name := spec.Target.Name; name != nil {
		key.Name = *name
	}
	return key
}

func targetOf(ot *cdiv1.ObjectTransfer) types.NamespacedName { return Target(&ot.Spec) }

// obstacle ends a pass: what stands in the way of the transfer, in the words of its condition.
type obstacle struct {
	message, reason string
	final           bool // for good
	poll            bool // nothing tells when it is out of the way
	warn            bool // a user has to do something
}

func (o *obstacle) Error() string { return o.message + ": " + o.reason }

// wait is for an obstacle whose end is watched.
func wait(message, reason string, args ...any) error {
	return &obstacle{message: message, reason: fmt.Sprintf(reason, args...)}
}

// poll is for one of which nothing tells that it is out of the way, and which a user should know of.
func poll(message, reason string, args ...any) error {
	return &obstacle{message: message, reason: fmt.Sprintf(reason, args...), poll: true, warn: true}
}

// await is for one that ends by itself, of which nothing tells.
func await(message, reason string, args ...any) error {
	return &obstacle{message: message, reason: fmt.Sprintf(reason, args...), poll: true}
}

// fail is for one that stays.
func fail(message, reason string, args ...any) error {
	return &obstacle{message: message, reason: fmt.Sprintf(reason, args...), final: true, warn: true}
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
