package dataimportcron

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/registries"
	"github.com/slipway-vm/slipway/internal/steps"
)

// poller asks a source which image it has.
type poller interface {
	// digest returns the digest of the image that cron's template would import now, as sha256:….
	// An image is looked for where settings say.
	digest(ctx context.Context, cron *cdiv1.DataImportCron, settings registries.Settings) (string, error)
}

// Reconciler keeps DataSources on the newest images of DataImportCrons.
type Reconciler struct {
	client.Client

	// live reads past the cache: ConfigMaps, and snapshots, a kind that a cluster may not have. Namespace is Slipway's.
	live      client.Reader
	namespace string
	image     string // holds /slipway

	events events.EventRecorder
	source poller
	limit  flowcontrol.RateLimiter
	polls  memory
	now    func() time.Time
}

// SetupWithManager adds the controller to mgr; namespace is Slipway's, image holds /slipway.
func SetupWithManager(mgr ctrl.Manager, namespace, image string) error {
	proxy := func(ctx context.Context) (cdiconfig.ImportProxy, error) {
		return cdiconfig.Proxy(ctx, mgr.GetClient(), mgr.GetAPIReader(), namespace)
	}
	return setup(mgr, namespace, image, &sources{live: mgr.GetAPIReader(), allowed: public, proxy: proxy}, time.Now)
}

func setup(mgr ctrl.Manager, namespace, image string, source poller, now func() time.Time) error {
	r := &Reconciler{
		Client: mgr.GetClient(), live: mgr.GetAPIReader(), namespace: namespace, image: image, events: mgr.GetEventRecorder("dataimportcron-controller"), source: source,
		limit: flowcontrol.NewTokenBucketRateLimiter(pollsPerSecond, pollBurst), now: now,
	}
	labelled := handler.EnqueueRequestsFromMapFunc(cronOf)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("dataimportcron").
		For(&cdiv1.DataImportCron{}).
		Watches(&cdiv1.DataVolume{}, labelled).
		Watches(&corev1.PersistentVolumeClaim{}, labelled).
		Watches(&corev1.Pod{}, labelled).
		Watches(&cdiv1.DataSource{}, labelled).
		Watches(&cdiv1.StorageProfile{}, handler.EnqueueRequestsFromMapFunc(r.everyCron)).
		Watches(&cdiv1.DataImportCron{}, handler.EnqueueRequestsFromMapFunc(r.rivalsOf), builder.WithPredicates(ended)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}). // each may wait for a server
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the DataImportCron controller: %w", err)
	}
	return nil
}

// cronOf requests the DataImportCron that an object is of.
func cronOf(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[LabelCron]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// ended are the ends of objects.
var ended = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// rivalsOf requests the DataImportCrons that would lead the DataSource of one that has ended.
func (r *Reconciler) rivalsOf(ctx context.Context, object client.Object) []reconcile.Request {
	gone, ok := object.(*cdiv1.DataImportCron)
	if !ok {
		return nil
	}
	var all cdiv1.DataImportCronList
	if err := r.List(ctx, &all, client.InNamespace(gone.Namespace)); err != nil {
		log.FromContext(ctx).Error(err, "Listing DataImportCrons failed")
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if all.Items[i].Spec.ManagedDataSource == gone.Spec.ManagedDataSource {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// everyCron requests all DataImportCrons: what they keep may have changed with a StorageProfile.
func (r *Reconciler) everyCron(ctx context.Context, _ client.Object) []reconcile.Request {
	var all cdiv1.DataImportCronList
	if err := r.List(ctx, &all); err != nil {
		log.FromContext(ctx).Error(err, "Listing DataImportCrons failed")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(all.Items))
	for i := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return requests
}

// steps are done in this order in every pass: nothing is done for a DataSource that is
// another's; the DataSource names what was imported before anything older goes, and before the
// claim goes of which there is a snapshot; a new import begins last. What was there before gets its owner when it
// is known that it stays.
func (r *Reconciler) steps() []func(context.Context, *scope) error {
	return []func(context.Context, *scope) error{
		r.refuseRival,
		r.poll,
		r.takeSnapshot,
		r.noteUse,
		r.ensureDataSource,
		r.releaseClaim,
		r.collectGarbage,
		r.startImport,
		r.ownImports,
	}
}

// Reconcile makes one pass over the DataImportCron that req names.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cron := &cdiv1.DataImportCron{}
	if err := r.Get(ctx, req.NamespacedName, cron); err != nil {
		if apierrors.IsNotFound(err) {
			r.polls.forget(req.NamespacedName)
			return ctrl.Result{}, nil // what was to go with it goes by its owner references
		}
		return ctrl.Result{}, fmt.Errorf("reading DataImportCron %s: %w", req.NamespacedName, err)
	}
	if cron.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	s, err := r.read(ctx, cron)
	if err != nil {
		return ctrl.Result{}, err
	}
	failure := steps.Run(ctx, s, r.steps())
	failure = errors.Join(failure, r.writeStatus(ctx, s))
	if apierrors.IsConflict(failure) {
		return ctrl.Result{RequeueAfter: busyRetry}, nil // the cache lags behind
	}
	return s.result, failure
}

// sooner makes the next pass come after d at the latest.
func (s *scope) sooner(d time.Duration) {
	d = max(d, time.Second)
	if s.result.RequeueAfter == 0 || d < s.result.RequeueAfter {
		s.result.RequeueAfter = d
	}
}

// refuseRival ends the pass when the DataSource is another DataImportCron's.
func (r *Reconciler) refuseRival(ctx context.Context, s *scope) error {
	if s.source == nil {
		return nil
	}
	name := s.source.Labels[LabelCron]
	if name == "" || name == s.cron.Name {
		return nil
	}
	other, err := get(ctx, r.Client, types.NamespacedName{Namespace: s.cron.Namespace, Name: name}, &cdiv1.DataImportCron{})
	if err != nil {
		return err
	}
	if other == nil || other.Spec.ManagedDataSource != s.source.Name {
		return nil // it is nobody's any more
	}
	s.rival = name
	s.sooner(lastRetry) // no event comes when somebody takes the other one's label away
	return steps.ErrDone
}
