// Package node watches over the nodes that run virtual machines: it closes a node to
// new ones once its virt-handler has been silent for too long, and tells other
// controllers when a node has changed in a way that concerns virtual machines.
package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/slipway-vm/slipway/internal/names"
)

// Patience is how long a virt-handler may be silent before its node counts as
// unresponsive. It renews the node's heartbeat annotation about once a minute.
const Patience = 5 * time.Minute

// Silence returns how long before now node's virt-handler last gave a sign of life, or
// a time beyond Patience when it never has.
func Silence(node *corev1.Node, now time.Time) time.Duration {
	last, err := time.Parse(`"2006-01-02T15:04:05Z07:00"`, quoted(node.Annotations[virtv1.VirtHandlerHeartbeat]))
	if err != nil {
		return now.Sub(node.CreationTimestamp.Time)
	}
	return now.Sub(last)
}

// quoted returns the heartbeat with quotes: it is a time as JSON in the field, and may be a bare one.
func quoted(heartbeat string) string {
	if len(heartbeat) > 0 && heartbeat[0] != '"' {
		return `"` + heartbeat + `"`
	}
	return heartbeat
}

// Ready says whether the kubelet of node reports it ready.
func Ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Changed passes the events of nodes that concern virtual machines: one came, went,
// changed its readiness, or offers a device or places for virtual machines, or no longer.
func Changed() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*corev1.Node)
			after, ok2 := e.ObjectNew.(*corev1.Node)
			return ok1 && ok2 && factsOf(before) != factsOf(after)
		},
	}
}

type facts struct {
	ready, schedulable, kvm, vhostNet, vsock bool
}

func factsOf(node *corev1.Node) facts {
	offers := func(device corev1.ResourceName) bool {
		count := node.Status.Capacity[device]
		return !count.IsZero()
	}
	return facts{
		ready: Ready(node), schedulable: schedulable(node),
		kvm: offers(names.DeviceKVM), vhostNet: offers(names.DeviceVhostNet), vsock: offers(names.DeviceVhostVSOCK),
	}
}

func schedulable(node *corev1.Node) bool { return node.Labels[virtv1.NodeSchedulable] == "true" }

// Reconciler closes nodes whose virt-handler is silent.
type Reconciler struct {
	client.Client
	now func() time.Time
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager) error {
	r := &Reconciler{Client: mgr.GetClient(), now: time.Now}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&corev1.Node{}, builder.WithPredicates(Changed())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the Node controller: %w", err)
	}
	return nil
}

// Reconcile closes the node that req names when its virt-handler has been silent for
// longer than Patience, and else looks again when it would have been. The handler
// opens the node again with its next heartbeat.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	node := &corev1.Node{}
	if err := r.Get(ctx, req.NamespacedName, node); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading node %s: %w", req.Name, err)
	}
	if !schedulable(node) {
		return ctrl.Result{}, nil
	}
	if silent := Silence(node, r.now()); silent < Patience {
		return ctrl.Result{RequeueAfter: Patience - silent}, nil
	}
	log.FromContext(ctx).Info("Closing a node whose virt-handler is silent", "Node", node.Name)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+virtv1.NodeSchedulable+`":"false"}}}`))
	err := r.Patch(ctx, node, patch, client.FieldOwner(names.ManagerController))
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("closing node %s: %w", node.Name, err)
	}
	return ctrl.Result{}, nil
}
