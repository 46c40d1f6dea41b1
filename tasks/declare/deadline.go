package declare

import (
	"context"
	"fmt"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// margin is how long before Tekton would end a TaskRun its task ends by itself, to say why.
const margin = 15 * time.Second

// DeadlineRule is the right that Bounded needs.
func DeadlineRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"tekton.dev"}, Resources: []string{"taskruns"}, Verbs: []string{"get"}}
}

// Bounded returns a context that ends with cause after the duration parameter name. When that is
// empty it ends shortly before Tekton ends the TaskRun, so that the task can say what it waited
// for; where the TaskRun cannot be read, Tekton's timeout is the bound.
func (c *Call) Bounded(ctx context.Context, name string, cause error) (context.Context, context.CancelFunc, error) {
	given, err := c.Duration(name)
	if err != nil {
		return nil, nil, err
	}
	if given > 0 {
		bounded, cancel := context.WithTimeoutCause(ctx, given, cause)
		return bounded, cancel, nil
	}
	end, err := c.deadline(ctx)
	if err != nil {
		c.Log.Info("the TaskRun's own timeout is the bound", "reason", err.Error())
	}
	if end.IsZero() {
		bounded, cancel := context.WithCancel(ctx)
		return bounded, cancel, nil
	}
	bounded, cancel := context.WithDeadlineCause(ctx, end, cause)
	return bounded, cancel, nil
}

// deadline is shortly before Tekton ends the TaskRun, zero when it never does.
func (c *Call) deadline(ctx context.Context) (time.Time, error) {
	if c.Client == nil || c.TaskRun.Name == "" {
		return time.Time{}, nil
	}
	var run tektonv1.TaskRun
	if err := c.Client.Get(ctx, c.TaskRun, &run); err != nil {
		return time.Time{}, fmt.Errorf("reading the timeout of TaskRun %s: %w", c.TaskRun, err)
	}
	if run.Spec.Timeout == nil || run.Spec.Timeout.Duration == 0 || run.Status.StartTime == nil {
		return time.Time{}, nil
	}
	limit := run.Spec.Timeout.Duration
	return run.Status.StartTime.Add(limit - min(margin, limit/4)), nil
}
