package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/names"
)

// vmiOfPod names the VMI of a launcher pod.
func vmiOfPod(_ context.Context, pod client.Object) []reconcile.Request {
	name := pod.GetAnnotations()[v1.DomainAnnotation]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}}}
}

// readinessChanged lets through what a readiness probe found anew. Other changes of pods
// come to the reconciler by their launchers.
func readinessChanged() predicate.Funcs {
	never := func(client.Object) bool { return false }
	funcs := predicate.NewPredicateFuncs(never)
	funcs.UpdateFunc = func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Pod)
		after, okToo := e.ObjectNew.(*corev1.Pod)
		return ok && okToo && hasReadiness(after) && readyOf(before) != readyOf(after)
	}
	return funcs
}

func hasReadiness(pod *corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == names.ComputeContainer {
			return pod.Spec.Containers[i].ReadinessProbe != nil
		}
	}
	return false
}

// readiness is what a pod's Ready condition says.
type readiness struct {
	status          corev1.ConditionStatus
	reason, message string
}

func readyOf(pod *corev1.Pod) readiness {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return readiness{condition.Status, condition.Reason, condition.Message}
		}
	}
	return readiness{}
}

// judgeEnd tells the end by a liveness probe from others. The kubelet gives the container
// a signal also when the pod is deleted, evicted or its node shuts down, all of which the
// pod shows; with none of them it was the probe.
func (r *Reconciler) judgeEnd(ctx context.Context, s *scope) error {
	if state := s.view.State; state == nil || !final(state.Phase) || !state.Terminated || s.failure != nil {
		return nil
	}
	if s.pod == nil || s.vmi.Spec.LivenessProbe == nil || s.vmi.DeletionTimestamp != nil {
		return nil
	}
	pod := &corev1.Pod{}
	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(s.pod), pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at why pod %s was ended: %w", s.pod.Name, err)
	}
	if pod.UID != s.pod.UID || pod.DeletionTimestamp != nil || pod.Status.Reason != "" {
		return nil
	}
	s.failure = &failure{reason: ReasonLivenessProbeFailed, message: "the liveness probe failed, so the kubelet ended the virtual machine; " +
		"the events of pod " + s.pod.Name + " tell what the probe found"}
	return nil
}
