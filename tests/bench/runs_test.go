//go:build e2e

package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/env"
)

// boundRun is how long a run with a guest may take under emulation.
const boundRun = 30 * time.Minute

// taskRun is a run of a shipped task with its own ServiceAccount.
func taskRun(task string, params map[string]string) *tektonv1.TaskRun {
	return &tektonv1.TaskRun{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-" + task + "-", Namespace: env.NamespaceTasks},
		Spec: tektonv1.TaskRunSpec{
			TaskRef:            &tektonv1.TaskRef{Kind: tektonv1.NamespacedTaskKind, Name: task},
			ServiceAccountName: task + "-task", Params: env.Params(params),
		},
	}
}

// pipelineRun is the shipped run of a pipeline with other values.
func pipelineRun(b *testing.B, c *env.Cluster, pipeline string, params map[string]string) *tektonv1.PipelineRun {
	b.Helper()
	run, err := c.PipelineRun(env.NamespaceTasks, pipeline, params)
	must(b, err)
	run.GenerateName = "bench-" + pipeline + "-"
	return run
}

// awaitRun waits until the PipelineRun has succeeded, and returns it as it is then.
func awaitRun(ctx context.Context, c *env.Cluster, run *tektonv1.PipelineRun) (*tektonv1.PipelineRun, error) {
	err := c.Await(ctx, io.Discard, run, boundRun, func(obj client.Object) (string, bool, error) {
		run = obj.(*tektonv1.PipelineRun)
		condition := run.Status.GetCondition(apis.ConditionSucceeded)
		switch {
		case condition == nil:
			return "created", false, nil
		case condition.IsFalse():
			return condition.Reason, true, fmt.Errorf("PipelineRun %s failed: %s", run.Name, condition.Message)
		}
		return condition.Reason + ": " + condition.Message, condition.IsTrue(), nil
	})
	return run, err
}

// remove deletes a run that is not needed any more.
func remove(b *testing.B, c *env.Cluster, objects ...client.Object) {
	b.Helper()
	for _, object := range objects {
		must(b, client.IgnoreNotFound(c.Client.Delete(context.WithoutCancel(b.Context()), object, client.PropagationPolicy(metav1.DeletePropagationBackground))))
	}
}

// awaitPod waits until the pod of a TaskRun is in the phase.
func awaitPod(b *testing.B, c *env.Cluster, run *tektonv1.TaskRun, phase corev1.PodPhase) *corev1.Pod {
	b.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: run.Namespace, Name: run.Name + "-pod"}}
	must(b, c.Await(b.Context(), io.Discard, pod, boundRun, func(obj client.Object) (string, bool, error) {
		pod = obj.(*corev1.Pod)
		if pod.Status.Phase == corev1.PodFailed && phase != corev1.PodFailed {
			return "", true, fmt.Errorf("pod %s failed", pod.Name)
		}
		return string(pod.Status.Phase), pod.Status.Phase == phase, nil
	}))
	return pod
}

// awaitLine follows the pod's log until a line holds the words.
func awaitLine(b *testing.B, c *env.Cluster, pod *corev1.Pod, words string) {
	b.Helper()
	bounded, stop := context.WithTimeout(b.Context(), bound)
	defer stop()
	stream, err := c.Kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true, Container: pod.Spec.Containers[0].Name}).Stream(bounded)
	must(b, err)
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		if strings.Contains(lines.Text(), words) {
			return
		}
	}
	b.Fatalf("the log of pod %s ended without %q: %v", pod.Name, words, lines.Err())
}

// median returns the middle of values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
