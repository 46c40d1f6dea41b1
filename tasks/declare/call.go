package declare

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CodeUsage is the exit code of a task whose parameters are wrong; the field's tasks end with it too.
const CodeUsage = 255

// Environment variables by which a generated Task speaks to the program.
const (
	envNamespace   = "TASK_NAMESPACE"
	envTaskRunName = "TASK_RUN_NAME"
	envTaskRunUID  = "TASK_RUN_UID"
	envResults     = "TASK_RESULTS_DIR"
	envDisk        = "TASK_DISK"
	envSecret      = "TASK_SECRET_DIR"
	envRetry       = "TASK_RETRY"
)

// Call is one run of a task: its parameters, and what it may use.
type Call struct {
	// Client reaches the API with the rights of the task's ServiceAccount. It is nil
	// for tasks that declare no rules.
	Client client.WithWatch
	// Namespace is where the TaskRun is.
	Namespace string
	// TaskRun names the run, for owner references and retries.
	TaskRun types.NamespacedName
	// TaskRunUID is the same through all retries of a run; empty outside Tekton.
	TaskRunUID types.UID
	// Retry says that an earlier try of this TaskRun was made.
	Retry bool
	// Disk is the path of the disk to work on: a file or a block device.
	Disk string
	// Secret is the folder with the keys of the task's Secret as files; it may not exist.
	Secret string
	// Out takes what the task prints for its user, Log what it tells of its progress.
	Out io.Writer
	Log *slog.Logger

	task    *Task
	strings map[string]string
	arrays  map[string][]string
	results string
}

// String returns the value of a string parameter, or its default.
func (c *Call) String(name string) string { return c.strings[name] }

// Array returns the items of an array parameter.
func (c *Call) Array(name string) []string { return c.arrays[name] }

// Bool returns the value of a parameter that is "true" or "false"; empty is false.
func (c *Call) Bool(name string) (bool, error) {
	switch value := c.strings[name]; value {
	case "true":
		return true, nil
	case "false", "":
		return false, nil
	default:
		return false, Coded(CodeUsage, fmt.Errorf("%s: %q is neither \"true\" nor \"false\"", name, value))
	}
}

// Duration returns the value of a parameter such as "90s" or "1h"; empty is zero, which means no bound.
func (c *Call) Duration(name string) (time.Duration, error) {
	value := c.strings[name]
	if value == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, Coded(CodeUsage, fmt.Errorf("%s: %q is no duration above zero; write for example 30m or 1h30m", name, value))
	}
	return d, nil
}

// Name returns the value of a parameter that names something, without spaces around it.
func (c *Call) Name(name string) string { return strings.TrimSpace(c.strings[name]) }

// NamespaceOr returns the value of the parameter, or the first of others that is set, or the TaskRun's namespace.
func (c *Call) NamespaceOr(name string, others ...string) string {
	for _, value := range append([]string{c.Name(name)}, others...) {
		if value != "" {
			return value
		}
	}
	return c.Namespace
}

// Owner returns a reference that makes the TaskRun own an object: the object goes when the run
// is deleted, not when its pod is.
func (c *Call) Owner() (metav1.OwnerReference, error) {
	if c.TaskRunUID == "" {
		return metav1.OwnerReference{}, errors.New("setOwnerReference: there is no TaskRun to own the object; run the task through Tekton")
	}
	return metav1.OwnerReference{APIVersion: "tekton.dev/v1", Kind: "TaskRun", Name: c.TaskRun.Name, UID: c.TaskRunUID}, nil
}

// OwnerIn returns the reference of Owner for an object in the namespace. An owner in another
// namespace does not count for Kubernetes, which would delete the object at once.
func (c *Call) OwnerIn(namespace string) (metav1.OwnerReference, error) {
	if namespace != c.Namespace {
		return metav1.OwnerReference{}, fmt.Errorf("setOwnerReference: the TaskRun in namespace %s cannot own an object in namespace %s; leave one of the two out", c.Namespace, namespace)
	}
	return c.Owner()
}

// Result writes a declared result.
func (c *Call) Result(name, value string) error {
	declared := false
	for _, r := range c.task.Results {
		declared = declared || r.Name == name
	}
	if !declared {
		return fmt.Errorf("writing result %s: task %s does not declare it", name, c.task.Name)
	}
	if c.results == "" {
		c.Log.Info("result", "name", name, "value", value)
		return nil
	}
	path := filepath.Join(c.results, name)
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("writing result %s: %w", name, err)
	}
	return nil
}

// marker begins the items of an array parameter among the program's arguments. It holds the
// run's uid, so that no item can be taken for it.
func marker(uid, name string) string { return "params." + strconv.Quote(name) + "@" + uid }
