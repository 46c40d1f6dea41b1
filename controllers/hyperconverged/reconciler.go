package hyperconverged

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
)

// Finalizer keeps the HyperConverged object until what it brought up is gone. The name is the field's.
const Finalizer = "kubevirt.io/hyperconverged"

// retryBlocked is how long to wait before looking again whether the workloads are gone
// that keep the installation from being removed.
const retryBlocked = 10 * time.Second

// Reconciler makes the cluster what the one HyperConverged object says.
type Reconciler struct {
	Client  client.Client // reads from the cache
	Reader  client.Reader // reads from the API server
	Cache   cache.Cache
	Clock   func() time.Time
	Options Options
	// SizesFiltered says that the cache has of instance types and preferences only what the
	// operator installed.
	SizesFiltered bool
	// InstancesFiltered says that it does not have the VMIs with a former launcher.
	InstancesFiltered bool

	controller controller.Controller // set by SetupWithManager

	applied ledger
	tried   ledger // of what was customized and tried; records have no version
	pruned  string // fingerprint of the set of objects after the last prune

	sizes   []*unstructured.Unstructured   // shippedSizes: what is shipped of instance types and preferences
	sources []hcov1.DataImportCronTemplate // commonSources: the boot images that are shipped

	mu      sync.Mutex
	watched map[schema.GroupVersionKind]bool

	home sync.Map // namespace: the names of namespaces that passes asked for, each true
}

// Reconcile does one pass over the HyperConverged object.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (result reconcile.Result, err error) {
	hco := &hcov1.HyperConverged{}
	if err := r.Client.Get(ctx, request.NamespacedName, hco); apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading HyperConverged %s: %w", request, err)
	}
	s := &scope{hco: hco}
	defer func() {
		s.err = err
		if !s.removed {
			err = errors.Join(err, r.writeStatus(ctx, s))
		}
		result, err = r.verdictOn(s, errors.Join(err, s.unplanned, s.unsourced))
	}()
	if hco.DeletionTimestamp != nil {
		return reconcile.Result{}, r.remove(ctx, s)
	}
	if controllerutil.AddFinalizer(hco, Finalizer) {
		if err := r.patchFinalizers(ctx, hco); err != nil {
			return reconcile.Result{}, err
		}
	}
	for _, step := range r.steps() {
		if err := step(ctx, s); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

type step func(context.Context, *scope) error

// steps lists what a pass does, in this order: nothing is written where another
// installation is; an update is told before it begins; rights before those who use them; operands before the
// components that read them, which they say the number of, and how they differ from what they are planned as; SSP before the tasks that it asks for; instance types and preferences, which nothing
// waits for, behind the rest; boot sources when it is known whether there is who admits them, and after those that
// are left out, whose DataSources may be theirs now; all else that is no longer wanted goes last, when its successor
// is there.
func (r *Reconciler) steps() []step {
	return []step{
		r.refuseConflicts,
		r.announceUpdate,
		r.ensureDefinitions,
		r.applyOperands,
		r.planComponents,
		r.customizeComponents,
		r.aggregateRoles,
		r.countOutdated,
		r.planBundles,
		r.planSources,
		r.addSizes,
		r.nameWanted,
		r.applyAndObserve,
		r.dropSources,
		r.applySources,
		r.prune,
	}
}

func (r *Reconciler) ensureDefinitions(ctx context.Context, _ *scope) error {
	return applyDefinitions(ctx, r.Client, r.Client)
}

func (r *Reconciler) planComponents(ctx context.Context, s *scope) error {
	asked := infraOf(s.kubevirt, s.cdi)
	if err := r.findPriority(ctx, s, &asked); err != nil {
		return err
	}
	wanted, err := plan(s.hco, asked, r.Options.Values())
	if err != nil {
		return err
	}
	s.wanted, err = r.servedHere(ctx, wanted)
	return err
}

// applyAndObserve applies the components also when instance types or preferences failed, and reads how far the components are even when one could not be applied: the status is to tell both.
// Of components that cannot be customized as is asked none is applied.
func (r *Reconciler) applyAndObserve(ctx context.Context, s *scope) error {
	problem := s.uncustomized
	if problem == nil {
		problem = r.tryCustomized(ctx, s)
	}
	if problem != nil {
		return errors.Join(problem, s.unsized, r.observe(ctx, s))
	}
	return errors.Join(s.unsized, r.applyComponents(ctx, s), r.observe(ctx, s))
}

// verdictOn turns what a pass came to into what the queue does next.
func (r *Reconciler) verdictOn(s *scope, err error) (reconcile.Result, error) {
	_, conflict := errors.AsType[*conflictError](err)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: time.Second}, nil // the object changed meanwhile: look again
	case conflict:
		return reconcile.Result{RequeueAfter: time.Minute}, nil // the condition tells; no event comes from deployments elsewhere
	case len(s.blockers) > 0:
		return reconcile.Result{RequeueAfter: retryBlocked}, nil
	case s.later && err == nil:
		return reconcile.Result{RequeueAfter: retryAdmission}, nil
	}
	return reconcile.Result{}, err
}

// patchFinalizers writes the finalizers of hco and nothing else, unless it changed meanwhile.
func (r *Reconciler) patchFinalizers(ctx context.Context, hco *hcov1.HyperConverged) error {
	before := hco.DeepCopy()
	before.Finalizers = nil
	if controllerutil.ContainsFinalizer(hco, Finalizer) {
		before.Finalizers = without(hco.Finalizers, Finalizer)
	} else {
		before.Finalizers = append(append([]string{}, hco.Finalizers...), Finalizer)
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, hco, patch, client.FieldOwner(names.ManagerOperator)); err != nil {
		return fmt.Errorf("writing finalizers of HyperConverged %s: %w", hco.Name, err)
	}
	return nil
}

func without(all []string, name string) []string {
	var kept []string
	for _, item := range all {
		if item != name {
			kept = append(kept, item)
		}
	}
	return kept
}

// watch makes events of the installed objects of a kind bring a pass. Kinds are watched
// from when the first object of them is installed, for some clusters do not serve all.
func (r *Reconciler) watch(ctx context.Context, kind schema.GroupVersionKind) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watched[kind] {
		return nil
	}
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(kind)
	if _, err := r.Cache.GetInformer(ctx, metadata); err != nil {
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("the cluster does not serve %s: %w", kind, err)
		}
		return fmt.Errorf("watching %s: %w", kind, err)
	}
	if r.controller != nil {
		if err := r.controller.Watch(source.Kind[client.Object](r.Cache, metadata, r.toTheOne(), r.eventsOf(kind)...)); err != nil {
			return fmt.Errorf("watching %s: %w", kind, err)
		}
	}
	if r.watched == nil {
		r.watched = map[schema.GroupVersionKind]bool{}
	}
	r.watched[kind] = true
	return nil
}

// toTheOne makes any event a pass over the one HyperConverged object.
func (r *Reconciler) toTheOne() handler.EventHandler {
	one := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: r.Options.Namespace, Name: names.HyperConvergedName}}
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{one}
	})
}
