// Package hostpathprovisioner reconciles HostPathProvisioner objects: the CSIDriver object,
// a StorageClass for each pool, and the claims that pools lie on. The volumes themselves are made on the nodes, by virt-handler.
package hostpathprovisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
)

// finalizer keeps the object, by which the nodes know the pools, until no volume is left.
const finalizer = names.Domain + "hostpath-volumes"

// leftRetry is how often volumes and snapshots are counted that keep an object from going, or what a pool
// lies on: of volumes virt-controller watches but a few, and the kind of snapshots a cluster may not have.
const leftRetry = 10 * time.Second

// annotationProvisionedBy names the driver that made a PersistentVolume.
const annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"

// Options are what the controller needs to know.
type Options struct {
	// Version is the program's version, told in status.
	Version string
	// Namespace is Slipway's, where the claims of pools are; Image holds /slipway, which their pods run.
	Namespace, Image string
}

// Reconciler reconciles HostPathProvisioner objects. The oldest counts, others are told so.
type Reconciler struct {
	client.Client

	live    client.Reader // of what is not watched: volumes, Deployments, and snapshots, a kind that a cluster may not have
	options Options
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	r := &Reconciler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), options: options}
	all := handler.EnqueueRequestsFromMapFunc(r.all)
	mine := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return isOurs(o) || o.GetName() == className }))
	holders := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[names.LabelPod] == kindHolder }))
	held := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[names.LabelStoragePool] != "" }))
	err := ctrl.NewControllerManagedBy(mgr).Named("hostpathprovisioner").
		Watches(&hppv1beta1.HostPathProvisioner{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&storagev1.StorageClass{}, all, mine).
		Watches(&storagev1.CSIDriver{}, all, mine).
		Watches(&corev1.Node{}, all, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.Pod{}, all, holders).
		Watches(&corev1.PersistentVolumeClaim{}, all, held).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of HostPathProvisioner: %w", err)
	}
	return setupLegacyClaims(mgr)
}

// isVolume tells whether the nodes need the object to delete a volume: they know its pool, or the directory
// of the legacy provisioner, from there.
func isVolume(object client.Object, spec hppv1beta1.HostPathProvisionerSpec) bool {
	switch object.GetAnnotations()[annotationProvisionedBy] {
	case names.HostPathDriver:
		return true
	case names.LegacyHostPathDriver:
		return spec.PathConfig != nil
	}
	return false
}

// all requests every object: which one counts may have changed.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var objects hppv1beta1.HostPathProvisionerList
	if err := r.List(ctx, &objects); err != nil {
		log.FromContext(ctx).Error(err, "Listing HostPathProvisioner objects failed")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(objects.Items))
	for i := range objects.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&objects.Items[i])})
	}
	return requests
}

// scope is what one pass knows.
type scope struct {
	object    *hppv1beta1.HostPathProvisioner
	volumes   int    // left to be deleted; set by countVolumes while the object is being deleted
	snapshots int    // likewise
	example   string // the name of one of them
	// claims are those that pools lie on, by the pools' names; set by reconcilePools.
	claims map[string]claims
	// ofDriver are the driver's volumes; set by volumes. staying are the labels of pools that have a Deployment which is
	// not asked for; set by dismiss. recalled are pools that are not asked for and have volumes; set by recall.
	ofDriver          []corev1.PersistentVolume
	staying, recalled []string
	// waitReason and waiting say what is waited for; set by wait. retry: nothing will tell of its end.
	waitReason, waiting string
	retry               bool
	// reason and message say what is wrong; set by degrade.
	reason, message string
}

func (s *scope) deleting() bool { return s.object.DeletionTimestamp != nil }

// ending tells that nothing keeps the object any more. What is gone must not be made again
// then: a pass may read the object from the cache after another pass let it go.
func (s *scope) ending() bool { return s.deleting() && s.volumes+s.snapshots == 0 }

// degrade keeps the first thing that is wrong and needs a person.
func (s *scope) degrade(reason, message string) {
	if s.reason == "" {
		s.reason, s.message = reason, message
	}
}

// wait keeps the first thing that is waited for.
func (s *scope) wait(reason, message string) {
	if s.waitReason == "" {
		s.waitReason, s.waiting = reason, message
	}
}

// Reconcile brings what belongs to one object to what it asks for.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (result ctrl.Result, err error) {
	var objects hppv1beta1.HostPathProvisionerList
	if err := r.List(ctx, &objects); err != nil {
		return result, fmt.Errorf("listing HostPathProvisioner objects: %w", err)
	}
	s := &scope{}
	for i := range objects.Items {
		if objects.Items[i].Name == request.Name {
			s.object = objects.Items[i].DeepCopy()
		}
	}
	if s.object == nil {
		return result, nil
	}
	defer func() { err = errors.Join(err, r.updateStatus(ctx, s)) }()
	if active := hppv1beta1.Active(objects.Items); active.Name != s.object.Name {
		s.degrade(ReasonAnother, fmt.Sprintf("HostPathProvisioner %s is older and counts alone: add the pools there and delete this one", active.Name))
		return result, r.release(ctx, s)
	}
	if !s.deleting() {
		if err := r.finalizers(ctx, s, controllerutil.AddFinalizer); err != nil {
			return result, err
		}
	}
	// The driver before the classes: a claim of a class may be provisioned at once.
	// The end after all: it deletes what they keep.
	for _, step := range []func(context.Context, *scope) error{
		r.countSnapshots, r.countVolumes, r.reconcileDriver, r.reconcileClasses, r.reconcilePools, r.recall, r.finish,
	} {
		if err := step(ctx, s); err != nil {
			return result, err
		}
	}
	if s.volumes+s.snapshots > 0 || s.retry {
		result.RequeueAfter = leftRetry
	}
	return result, nil
}

// countVolumes finds what keeps an object that is being deleted.
func (r *Reconciler) countVolumes(ctx context.Context, s *scope) error {
	if !s.deleting() {
		return nil
	}
	var volumes metav1.PartialObjectMetadataList
	volumes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeList"))
	if err := r.live.List(ctx, &volumes); err != nil {
		return fmt.Errorf("listing persistent volumes: %w", err)
	}
	for i := range volumes.Items {
		if isVolume(&volumes.Items[i], s.object.Spec) {
			s.volumes++
			s.example = volumes.Items[i].Name
		}
	}
	return nil
}

// countSnapshots finds what keeps an object that is being deleted besides volumes: a node
// that does not know the pools any more could not delete the data.
func (r *Reconciler) countSnapshots(ctx context.Context, s *scope) error {
	if !s.deleting() {
		return nil
	}
	var contents snapshotv1.VolumeSnapshotContentList
	if err := r.live.List(ctx, &contents); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("listing snapshots: %w", err)
	}
	for i := range contents.Items {
		if contents.Items[i].Spec.Driver == names.HostPathDriver {
			s.snapshots++
			s.example = contents.Items[i].Name
		}
	}
	return nil
}

// finish lets an object that is being deleted go once it has no volume left.
func (r *Reconciler) finish(ctx context.Context, s *scope) error {
	if !s.ending() {
		return nil
	}
	if err := r.removeDriver(ctx); err != nil {
		return err
	}
	return r.release(ctx, s)
}

// release lets the object go, if it is being deleted.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	if !s.deleting() {
		return nil
	}
	return r.finalizers(ctx, s, controllerutil.RemoveFinalizer)
}

// finalizers adds or removes ours, of the object as it was read.
func (r *Reconciler) finalizers(ctx context.Context, s *scope, change func(client.Object, string) bool) error {
	changed := s.object.DeepCopy()
	if !change(changed, finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(s.object, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing the finalizers of HostPathProvisioner %s: %w", s.object.Name, err)
	}
	return nil
}
