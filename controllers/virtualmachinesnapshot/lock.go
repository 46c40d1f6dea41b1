package virtualmachinesnapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/rename"
	"github.com/slipway-vm/slipway/internal/steps"
)

// protect keeps the snapshot until what belongs to it is cleared up.
func (r *Reconciler) protect(ctx context.Context, s *scope) error {
	return r.change(ctx, s.snapshot, func() { controllerutil.AddFinalizer(s.snapshot, Finalizer) })
}

// removeFinalizer lets the snapshot go.
func (r *Reconciler) removeFinalizer(ctx context.Context, s *scope) error {
	s.gone = true
	return ifThere(r.change(ctx, s.snapshot, func() { controllerutil.RemoveFinalizer(s.snapshot, Finalizer) }))
}

// lock locks the VM, once its disks can be taken.
func (r *Reconciler) lock(ctx context.Context, s *scope) error {
	if s.vm == nil {
		return steps.ErrDone
	}
	if !s.locked() {
		var err error
		if s.blocked, err = r.obstacle(ctx, s); err != nil || s.blocked != "" {
			return first(err, steps.ErrDone)
		}
		if err := r.setLock(ctx, s, &s.snapshot.Name); err != nil {
			return err
		}
	}
	return r.change(ctx, s.vm, func() { controllerutil.AddFinalizer(s.vm, FinalizerSource) })
}

// unlock unlocks the VM, when it is this snapshot that locked it.
func (r *Reconciler) unlock(ctx context.Context, s *scope) error {
	if !s.locked() || s.snapshot.DeletionTimestamp == nil && !s.expired() && !s.succeeded() {
		return nil
	}
	err := r.change(ctx, s.vm, func() { controllerutil.RemoveFinalizer(s.vm, FinalizerSource) })
	if err != nil {
		return ifThere(err)
	}
	return ifThere(r.setLock(ctx, s, nil))
}

// setLock writes who takes a snapshot of the VM. Of two that do it at once one fails, and reads again.
func (r *Reconciler) setLock(ctx context.Context, s *scope, by *string) error {
	changed := s.vm.DeepCopy()
	changed.Status.SnapshotInProgress = by
	patch := client.MergeFromWithOptions(s.vm, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("writing status.snapshotInProgress of VirtualMachine %s: %w", client.ObjectKeyFromObject(s.vm), err)
	}
	s.vm = changed
	return nil
}

// obstacle says why the VM cannot be locked yet; "" when it can.
func (r *Reconciler) obstacle(ctx context.Context, s *scope) (string, error) {
	status := &s.vm.Status
	switch {
	case s.vm.DeletionTimestamp != nil:
		return "source is being deleted", nil
	case s.vm.Spec.Template == nil:
		return "source has no template", nil
	case status.SnapshotInProgress != nil:
		return fmt.Sprintf("snapshot %q in progress", *status.SnapshotInProgress), nil
	case status.RestoreInProgress != nil:
		return fmt.Sprintf("restore %q in progress", *status.RestoreInProgress), nil
	case volumemigration.Pending(s.vm):
		return "source has volumes that are being copied to other claims", nil
	case rename.Target(s.vm) != "":
		return fmt.Sprintf("source is being renamed to %s", rename.Target(s.vm)), nil
	}
	return r.storageObstacle(ctx, s)
}

// storageObstacle says why the VM's disks and its state cannot be taken yet; "" when they can.
func (r *Reconciler) storageObstacle(ctx context.Context, s *scope) (string, error) {
	var claims []string
	for _, volume := range s.vm.Spec.Template.Spec.Volumes {
		if name := ClaimOf(&volume); name != "" {
			claims = append(claims, name)
		}
	}
	state, err := State(ctx, r.live, s.vm)
	if err != nil {
		return "", err
	}
	if state != nil {
		if why := stateObstacle(s.vm); why != "" {
			return why, nil
		}
		claims = append(claims, state.Name)
	}
	for _, name := range claims {
		if why, err := r.claimObstacle(ctx, s.vm.Namespace, name); err != nil || why != "" {
			return fmt.Sprintf("source %s/%s %s", s.vm.Namespace, s.vm.Name, why), err
		}
	}
	if s.vmi != nil || len(claims) == 0 {
		return "", nil
	}
	return r.users(ctx, s.vm.Namespace, claims)
}

// claimObstacle says why no snapshot of a claim can be taken; "" when one can.
func (r *Reconciler) claimObstacle(ctx context.Context, namespace, name string) (string, error) {
	claim := &corev1.PersistentVolumeClaim{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, claim)
	switch owner := metav1.GetControllerOf(claim); {
	case err != nil:
		return "", err
	case !found:
		return "volume doesnt exist: " + name, nil
	case claim.DeletionTimestamp != nil:
		return "volume is being deleted: " + name, nil
	case claim.Status.Phase != corev1.ClaimBound:
		return "volume not bound: " + name, nil
	case population.Awaited(claim), owner != nil && owner.Kind == "DataVolume" && claim.Annotations[datavolume.AnnotationPodPhase] != string(corev1.PodSucceeded):
		return "volume not populated: " + name, nil
	}
	return "", nil
}

// users says whether pods use claims although the VM does not run.
func (r *Reconciler) users(ctx context.Context, namespace string, claims []string) (string, error) {
	pods := &corev1.PodList{}
	if err := r.live.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("listing the pods of %s: %w", namespace, err)
	}
	var using []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && uses(pod, claims) {
			using = append(using, pod.Name)
		}
	}
	if len(using) == 0 {
		return "", nil
	}
	return fmt.Sprintf("source is offline but %d pods using PVCs %s: %s", len(using), strings.Join(claims, ", "), strings.Join(using, ", ")), nil
}

func uses(pod *corev1.Pod, claims []string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.PersistentVolumeClaim != nil && slices.Contains(claims, volume.PersistentVolumeClaim.ClaimName)
	})
}

// ClaimOf is the claim that a volume of a VM is on and that a snapshot of the VM is also of, "" for none.
func ClaimOf(volume *virtv1.Volume) string {
	switch {
	case volume.DataVolume != nil:
		return volume.DataVolume.Name
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.MemoryDump != nil:
		return volume.MemoryDump.ClaimName
	}
	return ""
}

// ifThere is err, unless that says that the object has gone.
func ifThere(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// change patches what edit changes of object, of the version that was read.
func (r *Reconciler) change(ctx context.Context, object client.Object, edit func()) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copying %T %s failed", object, object.GetName())
	}
	edit()
	if equality.Semantic.DeepEqual(before, object) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, object, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("changing %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// first is the first of errs that is one.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
