//go:build e2e

package scale

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// players is how many objects a role works on at a time.
const players = 8

// play watches pods and machines, and does to them what the scheduler, the kubelets and the
// virt-handlers do.
func (w *world) play(ctx context.Context, b *testing.B) {
	b.Helper()
	w.role(ctx, b, &corev1.PodList{}, w.placeOrStart)
	w.role(ctx, b, &virtv1.VirtualMachineInstanceList{}, w.launch)
}

// role lets act see every event of objects, a few at a time.
func (w *world) role(ctx context.Context, b *testing.B, list client.ObjectList, act func(context.Context, runtime.Object) error) {
	b.Helper()
	must(b, w.client.List(ctx, list))
	waiting := queued(ctx, apiserver.Watch(b, w.client, list).ResultChan())
	for range players {
		go func() {
			for event := range waiting {
				err := act(ctx, event.Object)
				if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					w.fail(err)
				}
			}
			if ctx.Err() == nil {
				w.fail(fmt.Errorf("the watch of %T ended", list))
			}
		}()
	}
}

// queued takes events at once, for an API server ends a watch whose reader is slow, and gives them
// on in their order.
func queued(ctx context.Context, events <-chan watch.Event) <-chan watch.Event {
	out := make(chan watch.Event)
	go func() {
		defer close(out)
		var waiting []watch.Event
		for {
			var (
				next chan<- watch.Event
				head watch.Event
			)
			if len(waiting) > 0 {
				next, head = out, waiting[0]
			}
			select {
			case event, more := <-events:
				if !more {
					return
				}
				waiting = append(waiting, event)
			case next <- head:
				waiting = waiting[1:]
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (w *world) fail(err error) {
	select {
	case w.broken <- err:
	default:
	}
}

// placed counts pods, to spread them over the nodes.
var placed atomic.Int64

// placeOrStart is the scheduler for a new pod, and the kubelet for one with a node.
func (w *world) placeOrStart(ctx context.Context, object runtime.Object) error {
	pod, ok := object.(*corev1.Pod)
	switch {
	case !ok || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodRunning:
		return nil
	case pod.Spec.NodeName == "":
		return w.client.SubResource("binding").Create(ctx, pod, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName(int(placed.Add(1)))},
		})
	}
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.0.0.1"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: names.ComputeContainer, Image: "launcher", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	return w.client.Status().Update(ctx, pod)
}

// launch is virt-handler with a launcher: a scheduled machine runs.
func (w *world) launch(ctx context.Context, object runtime.Object) error {
	vmi, ok := object.(*virtv1.VirtualMachineInstance)
	if !ok {
		return nil
	}
	w.instanceWrites.Add(1) // a watch tells of each
	switch vmi.Status.Phase {
	case virtv1.Running:
		w.running.Add(1)
		select {
		case w.progress <- struct{}{}:
		default:
		}
	case virtv1.Scheduled:
		return apply.Fields(ctx, w.client, vmi, names.ManagerHandler, map[string]any{"status": map[string]any{
			"phase": virtv1.Running,
			"phaseTransitionTimestamps": append(vmi.Status.PhaseTransitionTimestamps, virtv1.VirtualMachineInstancePhaseTransitionTimestamp{
				Phase: virtv1.Running, PhaseTransitionTimestamp: metav1.Now(),
			}),
			"conditions": []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}},
		}})
	}
	return nil
}
