package suite

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/env"
)

// BoundTask is how long a task of a test may take.
const BoundTask = 15 * time.Minute

// TasksNamespace waits until the operator has deployed the tasks into the namespace of the
// tests of tasks, and returns its name.
func TasksNamespace(ctx context.Context) string {
	ginkgo.GinkgoHelper()
	return WithTasks(ctx, env.NamespaceTasks)
}

// WithTasks waits until the operator has deployed the tasks into one of the namespaces that
// get them, and returns its name.
func WithTasks(ctx context.Context, namespace string) string {
	ginkgo.GinkgoHelper()
	gomega.Expect(World.Namespace(ctx, namespace)).To(gomega.Succeed())
	task := &tektonv1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "wait-for-vmi-status"}}
	err := World.Await(ctx, ginkgo.GinkgoWriter, task, BoundTask, func(client.Object) (string, bool, error) { return "deployed", true, nil })
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(World.ApplyYAML(ctx, []byte(keepAll), namespace)).To(gomega.Succeed())
	return namespace
}

// keepAll lets the step cache keep what suites make at the same time.
const keepAll = `{apiVersion: v1, kind: ConfigMap, metadata: {name: slipway-step-cache}, data: {maxCount: "200", maxSize: unlimited}}`

// TaskRun runs a task with parameters, strings or lists of strings, and returns it once it ended.
func TaskRun(ctx context.Context, task string, params map[string]any) *tektonv1.TaskRun {
	ginkgo.GinkgoHelper()
	return TaskRunIn(ctx, env.NamespaceTasks, task, params)
}

// TaskRunIn runs a task in a namespace that has the tasks, and returns it once it ended.
func TaskRunIn(ctx context.Context, namespace, task string, params map[string]any) *tektonv1.TaskRun {
	ginkgo.GinkgoHelper()
	run := &tektonv1.TaskRun{
		ObjectMeta: metav1.ObjectMeta{GenerateName: task + "-", Namespace: namespace},
		Spec: tektonv1.TaskRunSpec{
			TaskRef:            &tektonv1.TaskRef{Kind: tektonv1.NamespacedTaskKind, Name: task},
			ServiceAccountName: task + "-task",
		},
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value := tektonv1.ParamValue{Type: tektonv1.ParamTypeArray}
		switch v := params[name].(type) {
		case string:
			value = *tektonv1.NewStructuredValues(v)
		case []string:
			value.ArrayVal = v
		default:
			ginkgo.Fail("a parameter is a string or a list of strings")
		}
		run.Spec.Params = append(run.Spec.Params, tektonv1.Param{Name: name, Value: value})
	}
	Create(ctx, run)
	err := World.Await(ctx, ginkgo.GinkgoWriter, run, BoundTask, func(obj client.Object) (string, bool, error) {
		run = obj.(*tektonv1.TaskRun)
		condition := run.Status.GetCondition(apis.ConditionSucceeded)
		if condition == nil {
			return "created", false, nil
		}
		return condition.Reason + ": " + condition.Message, !condition.IsUnknown(), nil
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return run
}

// Succeeds runs a task that must succeed and returns its results.
func Succeeds(ctx context.Context, task string, params map[string]any) map[string]string {
	ginkgo.GinkgoHelper()
	return Results(ctx, TaskRun(ctx, task, params))
}

// Results are the results of a TaskRun that must have succeeded.
func Results(ctx context.Context, run *tektonv1.TaskRun) map[string]string {
	ginkgo.GinkgoHelper()
	if !run.Status.GetCondition(apis.ConditionSucceeded).IsTrue() {
		ginkgo.Fail("task run " + run.Name + " failed; it printed:\n" + TaskLog(ctx, run))
	}
	results := map[string]string{}
	for _, result := range run.Status.Results {
		results[result.Name] = result.Value.StringVal
	}
	return results
}

// Fails runs a task that must fail and returns its exit code and what it printed.
func Fails(ctx context.Context, task string, params map[string]any) (code int32, log string) {
	ginkgo.GinkgoHelper()
	run := TaskRun(ctx, task, params)
	log = TaskLog(ctx, run)
	gomega.Expect(run.Status.GetCondition(apis.ConditionSucceeded).IsFalse()).To(gomega.BeTrue(), "task %s succeeded: %s", task, log)
	gomega.Expect(run.Status.Steps).NotTo(gomega.BeEmpty())
	gomega.Expect(run.Status.Steps[0].Terminated).NotTo(gomega.BeNil())
	return run.Status.Steps[0].Terminated.ExitCode, log
}

// FailsInTime is Fails of a task that is to fail because its time is over, after it has come so far that it prints want: on a busy
// machine a short time is over before that, so that the task gets more of it until it does. Before each further attempt
// again is called, unless it is nil.
func FailsInTime(ctx context.Context, task string, params map[string]any, want string, again func(), times ...string) (code int32, log string) {
	ginkgo.GinkgoHelper()
	for n, timeout := range times {
		if n > 0 && again != nil {
			again()
		}
		params["timeout"] = timeout
		if code, log = Fails(ctx, task, params); strings.Contains(log, want) {
			break
		}
	}
	return code, log
}

// TaskLog returns what the task's first step printed.
func TaskLog(ctx context.Context, run *tektonv1.TaskRun) string {
	ginkgo.GinkgoHelper()
	if run.Status.PodName == "" || len(run.Status.Steps) == 0 {
		return "(it made no pod)"
	}
	log, err := World.Log(ctx, run.Namespace, run.Status.PodName, run.Status.Steps[0].Container)
	if err != nil {
		return err.Error()
	}
	return log
}
