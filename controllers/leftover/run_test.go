package leftover

import (
	"testing"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

func TestAbandoned(t *testing.T) {
	ended := func(status corev1.ConditionStatus, reason string) apis.Condition {
		return apis.Condition{Type: apis.ConditionSucceeded, Status: status, Reason: reason}
	}
	for name, c := range map[string]struct {
		condition         apis.Condition
		pipeline, taskRun string // what is said of a PipelineRun, and of a TaskRun
	}{
		"a run that just began":                {},
		"one that works":                       {condition: ended(corev1.ConditionUnknown, "Running")},
		"one that is being cancelled":          {condition: ended(corev1.ConditionUnknown, "CancelledRunningFinally")},
		"one whose finally works after a time": {condition: ended(corev1.ConditionUnknown, "PipelineRunTimeoutRunningFinally")},
		"one that failed":                      {condition: ended(corev1.ConditionFalse, "Failed")},
		"one that succeeded":                   {condition: ended(corev1.ConditionTrue, "Succeeded")},
		"a cancelled one":                      {condition: ended(corev1.ConditionFalse, "Cancelled"), pipeline: "cancelled", taskRun: "cancelled"},
		"one that timed out":                   {condition: ended(corev1.ConditionFalse, "PipelineRunTimeout"), pipeline: "timed-out", taskRun: "timed-out"},
		"a cancelled TaskRun":                  {condition: ended(corev1.ConditionFalse, "TaskRunCancelled"), pipeline: "cancelled", taskRun: "cancelled"},
		"a TaskRun that timed out":             {condition: ended(corev1.ConditionFalse, "TaskRunTimeout"), pipeline: "timed-out", taskRun: "timed-out"},
	} {
		t.Run(name, func(t *testing.T) {
			pipeline, task := &tektonv1.PipelineRun{}, &tektonv1.TaskRun{}
			if c.condition.Type != "" {
				pipeline.Status.Conditions = append(pipeline.Status.Conditions, c.condition)
				task.Status.Conditions = append(task.Status.Conditions, c.condition)
			}
			for want, run := range map[*string]client.Object{&c.pipeline: pipeline, &c.taskRun: task} {
				if got := abandoned(run); got != *want {
					t.Errorf("%T: got %q, want %q", run, got, *want)
				}
			}
		})
	}
}

// Only what the run alone owns is its own.
func TestOwn(t *testing.T) {
	owner := func(kind string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "tekton.dev/v1", Kind: kind, Name: "x", UID: uid}
	}
	for name, c := range map[string]struct {
		label  string
		owners []metav1.OwnerReference
		want   bool
	}{
		"made and owned":               {label: "run", owners: []metav1.OwnerReference{owner("TaskRun", "run")}, want: true},
		"made, and to be kept":         {label: "run"},
		"of another run":               {label: "other", owners: []metav1.OwnerReference{owner("TaskRun", "other")}},
		"marked as another run's":      {label: "other", owners: []metav1.OwnerReference{owner("TaskRun", "run")}},
		"owned by something else, too": {label: "run", owners: []metav1.OwnerReference{owner("TaskRun", "run"), owner("VirtualMachine", "vm")}},
		"owned by what was removed":    {label: "run", owners: []metav1.OwnerReference{owner("TaskRun", "run"), owner("VirtualMachine", "gone")}, want: true},
		"owned by a namesake's kind":   {label: "run", owners: []metav1.OwnerReference{owner("PipelineRun", "run")}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &broom{uids: map[types.UID]bool{"run": true}, gone: map[types.UID]bool{"gone": true}}
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{names.LabelTaskRun: c.label}, OwnerReferences: c.owners,
			}}
			if got := b.own(object); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
