// Package workloadupdate restarts VMs that run with the launcher of a former version, in batches,
// where the KubeVirt object asks for that by spec.workloadUpdateStrategy.
package workloadupdate

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
)

// Reasons of events, in the field's words.
const (
	reasonEvict       = "SuccessfulEvict"
	reasonEvictFailed = "FailedEvict"
)

// Reconciler shuts VMs with a former launcher down, whose controllers start them again.
type Reconciler struct {
	client.Client
	events events.EventRecorder
	now    func() time.Time
	// last is when this process shut somebody down. One that begins anew may do so earlier than
	// the interval says; those that are still on their way out then count.
	last time.Time
}

// SetupWithManager adds the controller to mgr. The KubeVirt object's status counts the VMIs with a
// former launcher, so its events tell of these, too.
func SetupWithManager(mgr ctrl.Manager) error {
	r := &Reconciler{Client: mgr.GetClient(), events: mgr.GetEventRecorder("workload-update-controller"), now: time.Now}
	if err := ctrl.NewControllerManagedBy(mgr).Named("workloadupdate").For(&virtv1.KubeVirt{}).Complete(r); err != nil {
		return fmt.Errorf("setting up the workload update controller: %w", err)
	}
	return nil
}

// Reconcile shuts the next batch down, if it is time.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	kv := &virtv1.KubeVirt{}
	if err := r.Get(ctx, req.NamespacedName, kv); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading KubeVirt %s: %w", req.NamespacedName, err)
	}
	s := strategyOf(kv)
	if !s.evicts {
		return ctrl.Result{}, nil
	}
	guests, err := r.outdated(ctx)
	if err != nil || len(guests) == 0 {
		return ctrl.Result{}, err
	}
	if left := r.last.Add(s.interval).Sub(r.now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	now, later := batch(guests, s.size)
	if len(now) > 0 {
		r.last = r.now()
		log.FromContext(ctx).Info("Restarting VMs with a former launcher", "count", len(now), "later", later)
	}
	var errs []error
	for _, g := range now {
		errs = append(errs, r.evict(ctx, g))
	}
	return ctrl.Result{RequeueAfter: s.interval}, errors.Join(errs...)
}

// outdated lists the VMIs with a former launcher that have not ended.
func (r *Reconciler) outdated(ctx context.Context) ([]guest, error) {
	list := &virtv1.VirtualMachineInstanceList{}
	if err := r.List(ctx, list, client.HasLabels{virtv1.OutdatedLauncherImageLabel}); err != nil {
		return nil, fmt.Errorf("listing VMIs with a former launcher: %w", err)
	}
	var guests []guest
	for i := range list.Items {
		if list.Items[i].IsFinal() {
			continue
		}
		g, err := r.withController(ctx, &list.Items[i])
		if err != nil {
			return nil, err
		}
		guests = append(guests, g)
	}
	return guests, nil
}

// withController reads who brings vmi back.
func (r *Reconciler) withController(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (guest, error) {
	g := guest{vmi: vmi}
	owner := metav1.GetControllerOf(vmi)
	if owner == nil {
		return g, nil
	}
	vm, set := &virtv1.VirtualMachine{}, &virtv1.VirtualMachineInstanceReplicaSet{}
	for kind, object := range map[string]client.Object{
		virtv1.VirtualMachineGroupVersionKind.Kind:                   vm,
		virtv1.VirtualMachineInstanceReplicaSetGroupVersionKind.Kind: set,
	} {
		if owner.Kind != kind {
			continue
		}
		err := r.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: owner.Name}, object)
		if client.IgnoreNotFound(err) != nil {
			return g, fmt.Errorf("reading %s %s/%s: %w", kind, vmi.Namespace, owner.Name, err)
		}
	}
	if vm.UID == owner.UID {
		g.vm = vm
	}
	if set.UID == owner.UID {
		g.set = set
	}
	return g, nil
}

// evict shuts g down in order, so that its controller starts it again: a VM as virtctl restart
// does, so that it starts under every run strategy that has restarts.
func (r *Reconciler) evict(ctx context.Context, g guest) error {
	err := r.shutDown(ctx, g)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return nil // it has changed since it was read: the next batch sees how
	case err != nil:
		r.events.Eventf(g.vmi, nil, corev1.EventTypeWarning, reasonEvictFailed, reasonEvictFailed, "Error restarting the virtual machine for an update: %v", err)
		return fmt.Errorf("shutting VirtualMachineInstance %s/%s down for an update: %w", g.vmi.Namespace, g.vmi.Name, err)
	}
	r.events.Eventf(g.vmi, nil, corev1.EventTypeNormal, reasonEvict, reasonEvict,
		"Shutting down to be started again with the launcher of the installed version")
	return nil
}

func (r *Reconciler) shutDown(ctx context.Context, g guest) error {
	if g.vm == nil {
		//nolint:wrapcheck // evict does
		return r.Delete(ctx, g.vmi, client.Preconditions{UID: &g.vmi.UID})
	}
	changed := g.vm.DeepCopy()
	changed.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{
		{Action: virtv1.StopRequest, UID: &g.vmi.UID}, {Action: virtv1.StartRequest},
	}
	patch := client.MergeFromWithOptions(g.vm, client.MergeFromWithOptimisticLock{})
	//nolint:wrapcheck // evict does
	return r.Status().Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController))
}
