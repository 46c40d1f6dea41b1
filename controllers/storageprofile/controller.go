// Package storageprofile keeps a StorageProfile for every StorageClass: what claims of the
// class should ask for, from what is known of provisioners (provisioners.yaml) or as somebody
// has set it in the profile's spec.
package storageprofile

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// volumesRetry is how often the volumes are looked at of a class that nobody provisions: they
// are not watched, for a cluster may have very many, and these are seldom made.
const volumesRetry = 5 * time.Minute

// Reconciler keeps StorageProfiles.
type Reconciler struct {
	client.Client

	read client.Reader // of classes, profiles and the CDI object
	live client.Reader // of what a cluster may not have, or has much of
	now  func() time.Time
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager) error {
	r := &Reconciler{Client: mgr.GetClient(), read: mgr.GetClient(), live: mgr.GetAPIReader(), now: time.Now}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("storageprofile").
		For(&storagev1.StorageClass{}).
		Watches(&cdiv1.StorageProfile{}, &handler.EnqueueRequestForObject{}).
		Watches(&cdiv1.CDI{}, handler.EnqueueRequestsFromMapFunc(r.everyClass)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the StorageProfile controller: %w", err)
	}
	return nil
}

// SetupSnapshotClasses adds to a manager that runs while the cluster has the kinds of snapshots
// what makes profiles follow the snapshot classes.
func SetupSnapshotClasses(mgr ctrl.Manager) error {
	r := &Reconciler{Client: mgr.GetClient(), read: mgr.GetAPIReader(), live: mgr.GetAPIReader(), now: time.Now}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("storageprofile-volumesnapshotclass").
		Watches(&snapshotv1.VolumeSnapshotClass{}, handler.EnqueueRequestsFromMapFunc(r.everyClass)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the snapshot classes of StorageProfiles: %w", err)
	}
	return nil
}

// everyClass requests all profiles.
func (r *Reconciler) everyClass(ctx context.Context, _ client.Object) []reconcile.Request {
	var classes storagev1.StorageClassList
	if err := r.read.List(ctx, &classes); err != nil {
		log.FromContext(ctx).Error(err, "Listing storage classes failed")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(classes.Items))
	for i := range classes.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: classes.Items[i].Name}})
	}
	return requests
}

// Reconcile makes the profile of the StorageClass that req names what it should be.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	class := &storagev1.StorageClass{}
	if err := r.read.Get(ctx, req.NamespacedName, class); apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.remove(ctx, req.Name)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading storage class %s: %w", req.Name, err)
	}
	installed, err := cdiconfig.Installed(ctx, r.read)
	if err != nil || installed == nil {
		return ctrl.Result{}, err
	}
	rows, err := table()
	if err != nil {
		return ctrl.Result{}, err // never: a test reads the table
	}
	f := facts{class: class, known: known(rows, class), now: metav1.NewTime(r.now())}
	profile, err := r.ensure(ctx, installed, f)
	if err != nil {
		return ctrl.Result{}, err
	}
	f.spec, f.before = profile.Spec, profile.Status
	if f.snapshots, err = r.snapshotClasses(ctx); err != nil {
		return ctrl.Result{}, err
	}
	var result ctrl.Result
	if class.Provisioner == noProvisioner {
		result.RequeueAfter = volumesRetry
		if f.volumes, err = r.volumes(ctx, class.Name); err != nil {
			return ctrl.Result{}, err
		}
	}
	status := newStatus(f)
	if equality.Semantic.DeepEqual(status, profile.Status) {
		return result, nil
	}
	log.FromContext(ctx).Info("Writing what is known of the storage class", "recognized", status.Conditions[0].Status)
	if err := apply.Status(ctx, r.Client, profile, names.ManagerData, status); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of StorageProfile %s: %w", profile.Name, err)
	}
	return result, nil
}

// remove deletes the profile of a class that is gone.
func (r *Reconciler) remove(ctx context.Context, name string) error {
	profile := &cdiv1.StorageProfile{}
	if err := r.read.Get(ctx, types.NamespacedName{Name: name}, profile); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading StorageProfile %s: %w", name, err)
	}
	if err := r.Delete(ctx, profile, client.Preconditions{UID: &profile.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting StorageProfile %s, whose storage class is gone: %w", name, err)
	}
	return nil
}

// ensure returns the class's profile, which it makes when there is none. Its spec is the users'.
func (r *Reconciler) ensure(ctx context.Context, installed *cdiv1.CDI, f facts) (*cdiv1.StorageProfile, error) {
	there := &cdiv1.StorageProfile{}
	err := r.read.Get(ctx, types.NamespacedName{Name: f.class.Name}, there)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading StorageProfile %s: %w", f.class.Name, err)
	}
	wanted := newProfile(installed, f, there)
	if err == nil && sameMetadata(there, wanted) {
		return there, nil
	}
	if err := apply.Object(ctx, r.Client, wanted, names.ManagerData); err != nil {
		return nil, fmt.Errorf("writing StorageProfile %s: %w", wanted.Name, err)
	}
	wanted.Spec, wanted.Status = there.Spec, there.Status
	return wanted, nil
}

// newProfile is what is written of a profile but for its status. A least size that somebody else has set stays.
func newProfile(installed *cdiv1.CDI, f facts, there *cdiv1.StorageProfile) *cdiv1.StorageProfile {
	profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{
		Name: f.class.Name, Labels: cdiconfig.Labels(), OwnerReferences: cdiconfig.Owners(installed),
	}}
	if f.known == nil || f.known.MinimumSize == "" {
		return profile
	}
	if set, isSet := there.Annotations[AnnotationMinimumSize]; !isSet || set == f.known.MinimumSize {
		profile.Annotations = map[string]string{AnnotationMinimumSize: f.known.MinimumSize}
	}
	return profile
}

// sameMetadata reports whether there has what wanted says.
func sameMetadata(there, wanted *cdiv1.StorageProfile) bool {
	for name, value := range wanted.Labels {
		if there.Labels[name] != value {
			return false
		}
	}
	for name, value := range wanted.Annotations {
		if there.Annotations[name] != value {
			return false
		}
	}
	return equality.Semantic.DeepEqual(there.OwnerReferences, wanted.OwnerReferences)
}

// snapshotClasses returns those of the cluster, none where it does not have the kind.
func (r *Reconciler) snapshotClasses(ctx context.Context) ([]snapshotv1.VolumeSnapshotClass, error) {
	var classes snapshotv1.VolumeSnapshotClassList
	if err := r.live.List(ctx, &classes); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("listing snapshot classes: %w", err)
	}
	return classes.Items, nil
}

// volumes returns those of a class.
func (r *Reconciler) volumes(ctx context.Context, class string) ([]corev1.PersistentVolume, error) {
	var all corev1.PersistentVolumeList
	if err := r.live.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	var of []corev1.PersistentVolume
	for i := range all.Items {
		if all.Items[i].Spec.StorageClassName == class {
			of = append(of, all.Items[i])
		}
	}
	return of, nil
}
