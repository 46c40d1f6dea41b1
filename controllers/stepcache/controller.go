// Package stepcache sweeps the step cache: it deletes the entries that a namespace's policy does
// not keep, and those that nobody fills any more.
//
// It acts when an entry, something that reads one, or the policy changes, and at the moments at
// which an entry comes of age; it looks at nothing in between.
package stepcache

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
)

// Reasons of events.
const (
	reasonRemoved = "StepCacheEntryRemoved"
	reasonPolicy  = "InvalidStepCachePolicy"
	eventAction   = "Sweep"
)

// Reconciler keeps each namespace's cache within its policy. A request names a namespace.
type Reconciler struct {
	client.Client
	// live reads past the cache: the Leases of entries that are being filled.
	live client.Reader
	// policies holds the ConfigMaps with policies, and no others.
	policies client.Reader
	events   events.EventRecorder
	now      func() time.Time
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager) error {
	policies, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Field: fields.OneTermEqualSelector("metadata.name", stepcache.ConfigName)},
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the step cache's sweeper: %w", err)
	}
	if err := mgr.Add(policies); err != nil {
		return fmt.Errorf("setting up the step cache's sweeper: %w", err)
	}
	r := &Reconciler{
		Client: mgr.GetClient(), live: mgr.GetAPIReader(), policies: policies,
		events: mgr.GetEventRecorder("step-cache-controller"), now: time.Now,
	}
	namespace := func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetNamespace()}}}
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("step-cache").
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(namespace), concerns(isEntryOrClone)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(namespace), concerns(isWorker)).
		WatchesRawSource(source.Kind(policies, &corev1.ConfigMap{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, m *corev1.ConfigMap) []reconcile.Request { return namespace(ctx, m) }))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the step cache's sweeper: %w", err)
	}
	return nil
}

// concerns lets events of objects through that are as is says.
func concerns(is func(client.Object) bool) builder.WatchesOption {
	return builder.WithPredicates(predicate.NewPredicateFuncs(is))
}

// isEntryOrClone reports whether the object is an entry, or may be the clone of one.
func isEntryOrClone(object client.Object) bool {
	dv, ok := object.(*cdiv1.DataVolume)
	_, entry := object.GetLabels()[stepcache.LabelState]
	return ok && (entry || dv.Spec.Source != nil && dv.Spec.Source.PVC != nil)
}

// isWorker reports whether the object is a pod that reads an entry.
func isWorker(object client.Object) bool {
	return object.GetLabels()[names.LabelPod] == stepcache.KindWorker
}

// Reconcile makes one pass over the cache of a namespace.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	entries, err := r.entries(ctx, req.Name)
	if len(entries) == 0 || err != nil {
		return ctrl.Result{}, err
	}
	policy, err := r.policy(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	again, err := r.markAbandoned(ctx, entries)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.now()
	victims, next := stepcache.Victims(entries, policy, now)
	again = earlier(again, next)
	for _, victim := range victims {
		if err := r.remove(ctx, victim); err != nil {
			return ctrl.Result{}, err
		}
	}
	if again.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(again.Sub(now), time.Second)}, nil
}

// entries reads the entries of a namespace, with what is in use at the moment.
func (r *Reconciler) entries(ctx context.Context, namespace string) ([]stepcache.Entry, error) {
	var volumes cdiv1.DataVolumeList
	if err := r.List(ctx, &volumes, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the DataVolumes of %s: %w", namespace, err)
	}
	entries := stepcache.Entries(volumes.Items)
	if len(entries) == 0 {
		return nil, nil
	}
	var workers corev1.PodList
	if err := r.List(ctx, &workers, client.InNamespace(namespace), client.MatchingLabels{names.LabelPod: stepcache.KindWorker}); err != nil {
		return nil, fmt.Errorf("listing the pods that read entries in %s: %w", namespace, err)
	}
	stepcache.MarkInUse(entries, volumes.Items, workers.Items)
	return entries, nil
}

// policy reads a namespace's policy. One that cannot be read keeps everything, and is told of.
func (r *Reconciler) policy(ctx context.Context, namespace string) (stepcache.Policy, error) {
	config := &corev1.ConfigMap{}
	err := r.policies.Get(ctx, client.ObjectKey{Namespace: namespace, Name: stepcache.ConfigName}, config)
	if apierrors.IsNotFound(err) {
		return stepcache.DefaultPolicy(), nil
	}
	if err != nil {
		return stepcache.Policy{}, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, stepcache.ConfigName, err)
	}
	policy, err := stepcache.ParsePolicy(config.Data)
	if err != nil {
		log.FromContext(ctx).Info("Keeping all entries, the policy cannot be read", "cause", err.Error())
		r.events.Eventf(config, nil, corev1.EventTypeWarning, reasonPolicy, eventAction, "Every entry of the step cache is kept until this is corrected: %s", err)
		return stepcache.Policy{Count: -1, Age: -1, Size: -1}, nil
	}
	return policy, nil
}

// markAbandoned looks at the Leases of the entries that are being filled, and returns when the
// first of them ends if it is not renewed.
func (r *Reconciler) markAbandoned(ctx context.Context, entries []stepcache.Entry) (again time.Time, err error) {
	now := r.now()
	for n := range entries {
		e := &entries[n]
		if e.State != stepcache.Filling || e.Abandoned || e.Going {
			continue
		}
		if until := e.BroughtUntil(); !until.IsZero() { // nobody works on it, so nobody has a Lease
			e.Abandoned = now.After(until)
			again = earlier(again, until.Add(time.Second))
			continue
		}
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: e.Namespace, Name: stepcache.LeaseName(e.Key)}
		err := r.live.Get(ctx, key, lease)
		switch {
		case apierrors.IsNotFound(err):
			e.Abandoned = true
		case err != nil:
			return again, fmt.Errorf("reading Lease %s: %w", key, err)
		case stepcache.Expired(lease, now), !e.FilledBy(lease):
			e.Abandoned = true
		default:
			again = earlier(again, stepcache.Expiry(lease).Add(time.Second))
		}
	}
	return again, nil
}

// remove deletes an entry of the version that was seen: one that a run has taken since stays.
func (r *Reconciler) remove(ctx context.Context, victim stepcache.Victim) error {
	dv := &cdiv1.DataVolume{}
	dv.Namespace, dv.Name, dv.UID = victim.Namespace, victim.Name, victim.UID
	log.FromContext(ctx).Info("Deleting an entry of the step cache", "entry", victim.Name, "reason", victim.Why)
	err := r.Delete(ctx, dv, client.Preconditions{UID: &victim.UID, ResourceVersion: &victim.ResourceVersion})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it changed; its change makes another pass
	}
	if err != nil {
		return fmt.Errorf("deleting entry %s/%s: %w", victim.Namespace, victim.Name, err)
	}
	r.events.Eventf(dv, nil, corev1.EventTypeNormal, reasonRemoved, eventAction, "Removed the result of %s from the step cache: %s", victim.Step, victim.Why)
	return nil
}

// earlier returns the earlier of two times, of which the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
