package leftover

import (
	"context"
	"fmt"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// AnnotationKeep on a run, with the value "true", keeps what it leaves behind. Tekton copies it
// from the Pipeline to its runs.
const AnnotationKeep = names.Domain + "keep-leftovers"

// labelTaskRun names the TaskRun of a pod.
const labelTaskRun = "tekton.dev/taskRun"

// abandoned says in a word how the run ended without doing all it was to do, empty when it did not.
func abandoned(object client.Object) string {
	var condition *apis.Condition
	switch run := object.(type) {
	case *tektonv1.PipelineRun:
		condition = run.Status.GetCondition(apis.ConditionSucceeded)
	case *tektonv1.TaskRun:
		condition = run.Status.GetCondition(apis.ConditionSucceeded)
	}
	if !condition.IsFalse() {
		return ""
	}
	switch condition.Reason {
	case string(tektonv1.PipelineRunReasonCancelled), string(tektonv1.TaskRunReasonCancelled):
		return "cancelled"
	case string(tektonv1.PipelineRunReasonTimedOut), string(tektonv1.TaskRunReasonTimedOut):
		return "timed-out"
	}
	return ""
}

// members returns the TaskRuns of the run, itself when it is one, and what of them still works:
// Tekton ends a PipelineRun before the pods of its TaskRuns have ended.
func (s *sweeper) members(ctx context.Context, run client.Object) (uids map[types.UID]bool, busy string, err error) {
	uids = map[types.UID]bool{run.GetUID(): true}
	label := labelTaskRun
	if _, pipeline := run.(*tektonv1.PipelineRun); pipeline {
		label = labelPipelineRun
		if uids, busy, err = s.taskRuns(ctx, run); busy != "" || err != nil {
			return nil, busy, err
		}
	}
	pods := &corev1.PodList{}
	if err := s.live.List(ctx, pods, client.InNamespace(run.GetNamespace()), client.MatchingLabels{label: run.GetName()}); err != nil {
		return nil, "", fmt.Errorf("listing the pods of run %s: %w", run.GetName(), err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && ownedBy(pod.OwnerReferences, uids) {
			return nil, "pod " + pod.Name, nil
		}
	}
	return uids, "", nil
}

func (s *sweeper) taskRuns(ctx context.Context, run client.Object) (uids map[types.UID]bool, busy string, err error) {
	all := &tektonv1.TaskRunList{}
	if err := s.live.List(ctx, all, client.InNamespace(run.GetNamespace()), client.MatchingLabels{labelPipelineRun: run.GetName()}); err != nil {
		return nil, "", fmt.Errorf("listing the TaskRuns of run %s: %w", run.GetName(), err)
	}
	uids = map[types.UID]bool{}
	for i := range all.Items {
		member := &all.Items[i]
		if !ownedBy(member.OwnerReferences, map[types.UID]bool{run.GetUID(): true}) {
			continue // of an earlier run of the same name
		}
		if !member.IsDone() {
			return nil, "TaskRun " + member.Name, nil
		}
		uids[member.UID] = true
	}
	return uids, "", nil
}

func ownedBy(references []metav1.OwnerReference, uids map[types.UID]bool) bool {
	for _, owner := range references {
		if uids[owner.UID] {
			return true
		}
	}
	return false
}
