package datavolume

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
)

// Options are what the controller cannot learn from the cluster.
type Options struct {
	// ImporterImage holds /slipway.
	ImporterImage string
	// Namespace is that of the installation, where the authority of upload servers is.
	Namespace string
}

// Reconciler brings DataVolumes to Succeeded.
type Reconciler struct {
	client.Client
	// live reads past the cache what is needed seldom.
	live      client.Reader
	events    events.EventRecorder
	options   Options
	listeners *progress.Listeners
	changed   chan event.GenericEvent // DataVolumes over which a pass is to be made
	uploads   *uploadSigner
	told      ledger
	pace      pace
	copies    copies
	now       func() time.Time
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	return setup(mgr, options, time.Now)
}

func setup(mgr ctrl.Manager, options Options, now func() time.Time) error {
	r := &Reconciler{
		Client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorder("datavolume-controller"),
		options: options, changed: make(chan event.GenericEvent, 64), now: now,
	}
	r.listeners = progress.New(r.wake)
	r.uploads = newUploadSigner(r)
	if err := errors.Join(mgr.Add(r.listeners), mgr.Add(r.uploads), r.uploads.keeper.Terms.Follow(mgr)); err != nil {
		return fmt.Errorf("setting up the DataVolume controller: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&cdiv1.DataVolume{}).
		Owns(&corev1.PersistentVolumeClaim{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.clonesOf)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(travellersOf)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(fillersOf)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(travellersOf)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(travellersOf)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.copies.under)).
		Watches(&cdiv1.DataSource{}, handler.EnqueueRequestsFromMapFunc(r.usersOf)).
		Watches(&cdiv1.StorageProfile{}, handler.EnqueueRequestsFromMapFunc(r.undecided)).
		Watches(&cdiv1.CDIConfig{}, handler.EnqueueRequestsFromMapFunc(r.configured)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.undecided)).
		WatchesRawSource(source.Channel(r.changed, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the DataVolume controller: %w", err)
	}
	return nil
}

// wake brings a pass over a DataVolume.
func (r *Reconciler) wake(ctx context.Context, dv types.NamespacedName) {
	select {
	case r.changed <- event.GenericEvent{Object: &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: dv.Namespace, Name: dv.Name}}}:
	case <-ctx.Done():
	}
}

// steps are done in this order in every pass, until one ends it: without a claim there is
// nothing to fill; what has ended needs no pod, unless its claim is yet to be bound; a pod is made last, anew where others than its settings hold, when all else stands, and then what is its own.
func (r *Reconciler) steps() []func(context.Context, *scope) error {
	return []func(context.Context, *scope) error{
		r.refuseStream,
		r.collectLeft,
		r.ensureClaim,
		r.takePrepared,
		r.settleVolume,
		r.awaitSource,
		r.noteEnd,
		r.bindWhole,
		r.cleanUp,
		r.missSnapshot,
		r.renewPod,
		r.ensurePod,
		r.handProxy,
		r.serveUpload,
		r.listen,
	}
}

// Reconcile makes one pass over the DataVolume that req names.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	dv := &cdiv1.DataVolume{}
	if err := r.Get(ctx, req.NamespacedName, dv); err != nil {
		if apierrors.IsNotFound(err) {
			r.listeners.Stop(req.NamespacedName)
			r.told.forget(req.NamespacedName)
			r.pace.forget(req.NamespacedName)
			r.copies.end(req.NamespacedName)
			return ctrl.Result{}, r.abandon(ctx, req.NamespacedName, "")
		}
		return ctrl.Result{}, fmt.Errorf("reading DataVolume %s: %w", req.NamespacedName, err)
	}
	if dv.DeletionTimestamp != nil {
		r.listeners.Stop(req.NamespacedName) // its claim and pod go by their owner references
		r.copies.end(req.NamespacedName)
		return ctrl.Result{}, r.abandon(ctx, req.NamespacedName, "")
	}
	r.pace.catchUp(dv)
	if dv.Status.Phase == "" { // a new one, perhaps in the place of another
		if err := r.abandon(ctx, req.NamespacedName, dv.UID); err != nil {
			return ctrl.Result{}, err
		}
	}
	s, err := r.read(ctx, dv)
	if err != nil {
		return ctrl.Result{}, err
	}
	failure := steps.Run(ctx, s, r.steps())
	if errors.Is(failure, errStale) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	failure = errors.Join(failure, r.writeStatus(ctx, s))
	if apierrors.IsConflict(failure) {
		log.FromContext(ctx).V(1).Info("Retrying, the cache lags behind", "cause", failure.Error())
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	return s.result, failure
}

// writeStatus writes what the pass has found, when it is new and is not to wait, and tells of it by events.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	now := r.now()
	status := newStatus(s, now)
	if equalStatus(status, s.dv.Status) {
		r.pace.rest(s.dv)
		return nil
	}
	if wait := r.pace.wait(s.dv, status, now); wait > 0 {
		if s.result.RequeueAfter == 0 || wait < s.result.RequeueAfter {
			s.result.RequeueAfter = wait
		}
		return nil
	}
	err := apply.Status(ctx, r.Client, s.dv, names.ManagerData, status)
	if apierrors.IsNotFound(err) {
		return nil // gone since it was read
	}
	if err != nil {
		return fmt.Errorf("writing what DataVolume %s has reached: %w", s.dv.Name, err)
	}
	r.pace.wrote(s.dv, status, now)
	r.tell(s, status)
	return nil
}

// clonesOf finds the DataVolumes that wait for a claim: to clone it, or to have its name or its disk.
func (r *Reconciler) clonesOf(ctx context.Context, claim client.Object) []reconcile.Request {
	return r.unfinished(ctx, func(dv *cdiv1.DataVolume) bool {
		if dv.Spec.SourceRef != nil || dv.Name == claim.GetName() && dv.Namespace == claim.GetNamespace() {
			return true // its DataSource may name the claim
		}
		source := dv.Spec.Source
		return source != nil && source.PVC != nil && source.PVC.Name == claim.GetName() && source.PVC.Namespace == claim.GetNamespace()
	})
}

// fillersOf finds the DataVolume that fills a claim which is not of its name.
func fillersOf(_ context.Context, object client.Object) []reconcile.Request {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok || !population.InPlace(claim) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: population.PrimeName(claim)}}}
}

// usersOf finds the DataVolumes that wait for a DataSource.
func (r *Reconciler) usersOf(ctx context.Context, dataSource client.Object) []reconcile.Request {
	return r.unfinished(ctx, func(dv *cdiv1.DataVolume) bool {
		ref := dv.Spec.SourceRef
		return ref != nil && ref.Name == dataSource.GetName()
	})
}

func (r *Reconciler) unfinished(ctx context.Context, concerned func(*cdiv1.DataVolume) bool) []reconcile.Request {
	var all cdiv1.DataVolumeList
	if err := r.List(ctx, &all); err != nil {
		log.FromContext(ctx).Error(err, "Listing DataVolumes failed")
		return nil
	}
	var requests []reconcile.Request
	for n := range all.Items {
		dv := &all.Items[n]
		if dv.Status.Phase != cdiv1.Succeeded && dv.Status.Phase != cdiv1.Failed && dv.Status.ClaimName == "" && concerned(dv) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: dv.Namespace, Name: dv.Name}})
		}
	}
	return requests
}
