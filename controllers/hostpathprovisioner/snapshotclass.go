package hostpathprovisioner

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// annotationDefaultSnapshot marks the class of snapshots that name none, for each driver.
const annotationDefaultSnapshot = "snapshot.storage.kubernetes.io/is-default-class"

// snapshotClassReconciler keeps the VolumeSnapshotClass of the driver, while the cluster has the kind.
type snapshotClassReconciler struct {
	client.Client

	events events.EventRecorder
}

// SetupSnapshotClass adds the controller of the driver's VolumeSnapshotClass to a manager
// that runs while the cluster has the kinds of snapshots.
func SetupSnapshotClass(mgr ctrl.Manager) error {
	r := &snapshotClassReconciler{Client: mgr.GetClient(), events: mgr.GetEventRecorder("hostpathprovisioner-controller")}
	theOne := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: className}}}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("hostpath-volumesnapshotclass").
		Watches(&hppv1beta1.HostPathProvisioner{}, theOne, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&snapshotv1.VolumeSnapshotClass{}, theOne).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of the driver's VolumeSnapshotClass: %w", err)
	}
	return nil
}

// Reconcile makes the class while there are pools, and removes it with them.
func (r *snapshotClassReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var objects hppv1beta1.HostPathProvisionerList
	if err := r.List(ctx, &objects); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing HostPathProvisioner objects: %w", err)
	}
	var classes snapshotv1.VolumeSnapshotClassList
	if err := r.List(ctx, &classes); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing snapshot classes: %w", err)
	}
	var current *snapshotv1.VolumeSnapshotClass
	for i := range classes.Items {
		if classes.Items[i].Name == className {
			current = &classes.Items[i]
		}
	}
	active := hppv1beta1.Active(objects.Items)
	if active == nil || active.DeletionTimestamp != nil {
		return ctrl.Result{}, r.remove(ctx, current)
	}
	return ctrl.Result{}, r.apply(ctx, active, classes.Items, current)
}

func (r *snapshotClassReconciler) remove(ctx context.Context, current *snapshotv1.VolumeSnapshotClass) error {
	if current == nil || !isOurs(current) {
		return nil
	}
	if err := r.Delete(ctx, current); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting snapshot class %s: %w", className, err)
	}
	return nil
}

func (r *snapshotClassReconciler) apply(ctx context.Context, active *hppv1beta1.HostPathProvisioner,
	all []snapshotv1.VolumeSnapshotClass, current *snapshotv1.VolumeSnapshotClass,
) error {
	wanted := snapshotClass(all)
	switch {
	case current == nil:
	case !isOurs(current):
		if current.Driver != wanted.Driver {
			r.events.Eventf(active, current, corev1.EventTypeWarning, ReasonConflict, "Reconcile",
				"VolumeSnapshotClass %s exists and is of driver %s: rename it, or make one of driver %s yourself", className, current.Driver, wanted.Driver)
		}
		return nil // somebody made it by hand
	case current.Driver == wanted.Driver && current.DeletionPolicy == wanted.DeletionPolicy && within(wanted.Annotations, current.Annotations):
		return nil
	}
	return apply.Object(ctx, r.Client, wanted, names.ManagerController)
}

// snapshotClass is the class of snapshots of every pool: a snapshot is kept in its volume's pool. It
// is the driver's default when there is no other and nobody said that it is not.
func snapshotClass(all []snapshotv1.VolumeSnapshotClass) *snapshotv1.VolumeSnapshotClass {
	class := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: className, Labels: labels()},
		Driver:     names.HostPathDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	isDefault := true
	for i := range all {
		said := all[i].Annotations[annotationDefaultSnapshot]
		if all[i].Name == className && said != "" {
			isDefault = said == "true"
			break
		}
		if all[i].Driver == names.HostPathDriver && said == "true" {
			isDefault = false
		}
	}
	if isDefault {
		class.Annotations = map[string]string{annotationDefaultSnapshot: "true"}
	}
	return class
}
