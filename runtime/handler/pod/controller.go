// Package pod gives every launcher pod of the node, and every attachment pod, its session
// for as long as the pod is there.
package pod

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/session"
)

// Reconciler opens and closes sessions.
type Reconciler struct {
	Client   client.Client
	Sessions *session.Server

	mu     sync.Mutex
	served map[types.NamespacedName]types.UID
}

// SetupWithManager registers the reconciler for the pods that the manager's cache holds:
// the launcher pods of this node.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := ctrl.NewControllerManagedBy(mgr).Named("launcherpod").For(&corev1.Pod{}).Complete(r); err != nil {
		return fmt.Errorf("setting up the pod controller: %w", err)
	}
	return nil
}

// Reconcile serves the pod's session, or ends it when the pod is gone.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, request.NamespacedName, pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("getting pod %s: %w", request.NamespacedName, err)
	}
	r.forgetOther(request.NamespacedName, pod.UID)
	if err != nil {
		return ctrl.Result{}, nil
	}
	who := session.Pod{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name,
		VMI: pod.Annotations[v1.DomainAnnotation], VMIUID: types.UID(pod.Labels[v1.CreatedByLabel]),
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && pod.Labels[v1.AppLabel] == names.AppAttachment {
		who.VMIUID, who.Volume = owner.UID, pod.Annotations[names.AnnotationVolume]
	}
	if who.VMI == "" || who.VMIUID == "" {
		log.FromContext(ctx).Info("Not serving a pod that does not say which VMI it is for")
		return ctrl.Result{}, nil
	}
	if _, err := r.Sessions.Ensure(ctx, who); err != nil {
		return ctrl.Result{}, err
	}
	r.remember(request.NamespacedName, pod.UID)
	return ctrl.Result{}, nil
}

// forgetOther ends the session of an earlier pod of the name, whose uid is not now.
func (r *Reconciler) forgetOther(name types.NamespacedName, now types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, found := r.served[name]; found && before != now {
		r.Sessions.Forget(before)
		delete(r.served, name)
	}
}

func (r *Reconciler) remember(name types.NamespacedName, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.served == nil {
		r.served = map[types.NamespacedName]types.UID{}
	}
	r.served[name] = uid
}
