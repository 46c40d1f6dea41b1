package datavolume

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/controllers/handover"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// A clone from another namespace is made where its source is, as claim clone-<uid of the
// DataVolume>; its volume is then taken from that claim and given to the DataVolume's own, as
// package handover does it. These marks and its own are all that is remembered.
const (
	// LabelCloneFor on the claim, its pod and the volume is the DataVolume's uid. On a volume that is on its way for
	// another object it is that object's: virt-controller hears of no other volumes.
	LabelCloneFor = names.Domain + "clone-for"
	// annotationCloneFor is the DataVolume, as namespace/name.
	annotationCloneFor = names.Domain + "clone-for"
	// annotationBroughtFrom on the DataVolume's claim and on the volume is what it is a clone of, as clonesource.Source.Mark
	// writes it.
	annotationBroughtFrom = names.Domain + "cloned-from"
)

// bringVolume makes a clone of source in its namespace and gives its volume to claim, which is
// yet to be created. It ends the pass until the volume is ready for claim.
func (r *Reconciler) bringVolume(ctx context.Context, s *scope, source *origin, claim *corev1.PersistentVolumeClaim) error {
	w, volume := s.way, s.way.volume
	if volume == nil {
		var err error
		if volume, err = r.cloneThere(ctx, s, source, claim, w.there); err != nil {
			return err
		}
	}
	if w.there != nil {
		return r.takeAway(ctx, s, w.there)
	}
	now, err := get(ctx, r.live, client.ObjectKeyFromObject(claim), &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	if now != nil {
		return errStale // it may have the volume already
	}
	if err := handover.Give(ctx, r.Client, volume, claim, names.ManagerData); err != nil {
		return err
	}
	setAll(&claim.Annotations, map[string]string{annotationBroughtFrom: source.Mark()})
	if digest := volume.Annotations[names.AnnotationDigest]; digest != "" {
		setAll(&claim.Annotations, map[string]string{names.AnnotationDigest: digest})
	}
	if node := NodeOf(volume); node != "" { // whose virt-handler then may expand the claim
		setAll(&claim.Annotations, map[string]string{annotationSelectedNode: node})
	}
	claim.Spec.VolumeName = volume.Name
	return nil
}

func cloneName(uid types.UID) string { return "clone-" + string(uid) }

// cloneThere brings the clone about in the source's namespace, and marks its volume once it is complete.
func (r *Reconciler) cloneThere(ctx context.Context, s *scope, source *origin, claim, there *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if there == nil {
		there = buildThere(s.dv, source, claim)
		log.FromContext(ctx).Info("Cloning in the source's namespace", "source", source.String(), "claim", there.Name)
		if err := r.createThere(ctx, s, there); err != nil {
			return nil, err
		}
	}
	if err := r.copyThere(ctx, s, source, there); err != nil {
		return nil, err
	}
	if there.Status.Phase != corev1.ClaimBound || there.Spec.VolumeName == "" {
		s.cloning = &obstacle{reasonCloning, fmt.Sprintf("Cloning %s, as PVC %s there", source, there.Name)}
		return nil, r.bindThere(ctx, s, source, there)
	}
	volume := &corev1.PersistentVolume{}
	if err := r.live.Get(ctx, types.NamespacedName{Name: there.Spec.VolumeName}, volume); err != nil {
		return nil, fmt.Errorf("reading the volume of claim %s/%s: %w", there.Namespace, there.Name, err)
	}
	notes := map[string]string{annotationCloneFor: client.ObjectKeyFromObject(s.dv).String(), annotationBroughtFrom: source.Mark()}
	if isCopy(there) {
		notes[AnnotationCopiedFrom] = source.Mark()
		if digest := there.Annotations[names.AnnotationDigest]; digest != "" {
			notes[names.AnnotationDigest] = digest
		}
	}
	return volume, handover.Keep(ctx, r.Client, volume, there, onItsWay(s.dv.UID, notes))
}

// onItsWay says for which DataVolume a volume is on its way; notes are nil where they are to be removed.
func onItsWay(uid types.UID, notes map[string]string) handover.For {
	if notes == nil {
		notes = map[string]string{annotationCloneFor: "", annotationBroughtFrom: "", AnnotationCopiedFrom: "", names.AnnotationDigest: ""}
	}
	return handover.For{Label: LabelCloneFor, UID: uid, Notes: notes}
}

// buildThere returns the claim in the source's namespace that the clone is made as, or copied into: like claim, but
// for whatever is the DataVolume's own.
func buildThere(dv *cdiv1.DataVolume, source *origin, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	there := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: cloneName(dv.UID), Namespace: source.Key().Namespace,
			Labels:      map[string]string{LabelCloneFor: string(dv.UID), names.LabelManagedBy: names.ManagedBy, labelApp: labelAppValue},
			Annotations: map[string]string{annotationCloneFor: client.ObjectKeyFromObject(dv).String(), annotationFillingAlert: "disabled"},
		},
		Spec: *claim.Spec.DeepCopy(),
	}
	there.Spec.VolumeName = ""
	if isCopy(claim) {
		setAll(&there.Annotations, copyNotes(source))
	} else {
		there.Spec.DataSource = source.reference()
	}
	return there
}

// createThere creates an object in the source's namespace.
func (r *Reconciler) createThere(ctx context.Context, s *scope, object client.Object) error {
	err := r.tryCreate(ctx, s, object)
	if apierrors.IsForbidden(err) { // a quota of that namespace
		s.waiting = &obstacle{reasonPending, "The clone is made in the source's namespace first, which does not take it: " + err.Error()}
		s.result.RequeueAfter = takenRetry
		return steps.ErrDone
	}
	return err
}

// bindThere gets the clone bound where volumes wait for a consumer: by a pod on the source's node.
func (r *Reconciler) bindThere(ctx context.Context, s *scope, source *origin, there *corev1.PersistentVolumeClaim) error {
	class, err := get(ctx, r.Client, types.NamespacedName{Name: ptr.Deref(there.Spec.StorageClassName, "")}, &storagev1.StorageClass{})
	if err != nil {
		return err
	}
	waits := class != nil && ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer
	if !waits || there.DeletionTimestamp != nil {
		return steps.ErrDone
	}
	pod, err := get(ctx, r.Client, types.NamespacedName{Namespace: there.Namespace, Name: PodName(there.Name)}, &corev1.Pod{})
	if err != nil {
		return err
	}
	if pod == nil {
		affinity, err := r.nodesOf(ctx, &source.Source)
		if err != nil {
			return err
		}
		// Nothing of the DataVolume but its name comes into the other namespace.
		stranger := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: there.Name, Namespace: there.Namespace}}
		stranger.Spec.PVC = &there.Spec
		pod = buildPod(podInput{DataVolume: stranger, Claim: there, Image: r.options.ImporterImage, Workload: s.workload, Binder: true, Affinity: affinity})
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(there, corev1.SchemeGroupVersion.WithKind(kindClaim))}
		pod.Labels[LabelCloneFor] = string(s.dv.UID)
		if err := r.createThere(ctx, s, pod); err != nil {
			return err
		}
	}
	return steps.ErrDone
}

// takeAway removes the claim in the source's namespace, whose volume is marked and stays.
func (r *Reconciler) takeAway(ctx context.Context, s *scope, there *corev1.PersistentVolumeClaim) error {
	s.cloning = &obstacle{reasonCloning, fmt.Sprintf("Bringing the clone from namespace %s", there.Namespace)}
	if err := r.removeThere(ctx, there); err != nil {
		return err
	}
	return steps.ErrDone
}

// removeThere removes a claim in a source's namespace, and first the pod that keeps it.
func (r *Reconciler) removeThere(ctx context.Context, there *corev1.PersistentVolumeClaim) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: there.Namespace, Name: PodName(there.Name)}}
	if err := r.Delete(ctx, pod); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if there.DeletionTimestamp != nil {
		return nil
	}
	if err := r.Delete(ctx, there, client.Preconditions{UID: &there.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting claim %s/%s: %w", there.Namespace, there.Name, err)
	}
	return nil
}

// settleVolume gives a volume that has arrived its reclaim policy back and removes the marks.
func (r *Reconciler) settleVolume(ctx context.Context, s *scope) error {
	if s.claim == nil || s.claim.Annotations[annotationBroughtFrom] == "" || s.claim.Status.Phase != corev1.ClaimBound || s.done() {
		return nil
	}
	volume, err := r.travelling(ctx, s.dv)
	if err != nil || volume == nil {
		return err
	}
	return handover.Settle(ctx, r.Client, volume, onItsWay(s.dv.UID, nil))
}

// abandon removes what was on its way to a DataVolume that is gone: the claim in the source's
// namespace, and the volume, which goes as its class wants it.
func (r *Reconciler) abandon(ctx context.Context, key types.NamespacedName, alive types.UID) error {
	var claims corev1.PersistentVolumeClaimList
	if err := r.List(ctx, &claims, client.HasLabels{LabelCloneFor}); err != nil {
		return fmt.Errorf("listing clones that are on their way: %w", err)
	}
	for n := range claims.Items {
		if left(&claims.Items[n], key, alive) {
			if err := r.removeThere(ctx, &claims.Items[n]); err != nil {
				return err
			}
		}
	}
	var volumes corev1.PersistentVolumeList
	if err := r.List(ctx, &volumes, client.HasLabels{LabelCloneFor}); err != nil {
		return fmt.Errorf("listing volumes that are on their way: %w", err)
	}
	for n := range volumes.Items {
		volume := &volumes.Items[n]
		if !left(volume, key, alive) {
			continue
		}
		log.FromContext(ctx).Info("Giving up a volume whose DataVolume is gone", "volume", volume.Name)
		if err := handover.GiveUp(ctx, r.Client, volume, onItsWay("", nil)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// left says whether object was on its way to another DataVolume of that name than the one that is alive.
func left(object client.Object, key types.NamespacedName, alive types.UID) bool {
	return object.GetAnnotations()[annotationCloneFor] == key.String() && object.GetLabels()[LabelCloneFor] != string(alive)
}

// travellersOf finds the DataVolume for which a claim or volume is on its way.
func travellersOf(_ context.Context, object client.Object) []reconcile.Request {
	namespace, name, ok := strings.Cut(object.GetAnnotations()[annotationCloneFor], "/")
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}
