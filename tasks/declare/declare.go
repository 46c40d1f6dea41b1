// Package declare is what a provisioning task is: its parameters, results, rights and
// code, said once in Go. The Tekton Task, its README and its roles are generated from
// that, and the same declaration reads the parameters when the task runs.
package declare

import (
	"context"
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Image says in which of Slipway's images a task runs.
type Image string

// Images as the generated YAML names them. The operator puts its own in their place;
// without the operator, a kustomization does.
const (
	Slipway Image = "ghcr.io/slipway-vm/slipway:devel"
	Guestfs Image = "ghcr.io/slipway-vm/slipway-guestfs:devel"
)

// Task is a provisioning task.
type Task struct {
	// Name is the Tekton Task's name and the subcommand of `slipway task`.
	Name string
	// Title is what a catalog shows.
	Title string
	// Summary is one sentence, Details the paragraphs that follow it in the README.
	Summary string
	Details string
	Params  []Param
	Results []Result
	// Rules are the API verbs that the task uses, no more.
	Rules []rbacv1.PolicyRule
	// ClientCode is the exit code when the API client cannot be made; 1 when it is 0.
	ClientCode int
	// ClientOptional lets the task run where it has no access to the API: Call.Client is nil then.
	ClientOptional bool
	// Memory is what the task's pod asks for, such as "48Mi"; empty for what its image usually needs.
	Memory string
	Image  Image
	// Disk names the parameter that holds the claim whose disk the task works on, if any.
	Disk string
	// Secret is a Secret that the task reads as files, if any.
	Secret *SecretMount
	// Data is the number of optional workspaces data01, data02, … at /data01, /data02, …
	Data int
	// Examples are TaskRuns for the README.
	Examples []Example
	// Run does the work.
	Run func(ctx context.Context, call *Call) error
}

// Param is a parameter of a task.
type Param struct {
	Name        string
	Description string
	// Array says that the parameter is a list of strings; otherwise it is a string.
	Array bool
	// Required parameters have no default.
	Required bool
	// Default is the value of an optional string parameter.
	Default string
	// Kind is how forms should ask for the value, in the field's words: "boolean", "script", "duration",
	// "namespace", "resource-yaml", …; when it is empty, "string" or "array".
	Kind string
	// Object is the kind of object that the value names or describes, if any.
	Object ObjectHint
	// Earlier are names that the parameter had in the field before. A run may still use one of
	// them, instead of Name.
	Earlier []string
}

// ObjectHint tells a form of which objects to offer the names.
type ObjectHint struct{ APIVersion, Kind string }

// Hints for the objects that tasks ask for.
var (
	VirtualMachine         = ObjectHint{"kubevirt.io/v1", "VirtualMachine"}
	VirtualMachineInstance = ObjectHint{"kubevirt.io/v1", "VirtualMachineInstance"}
	DataVolume             = ObjectHint{"cdi.kubevirt.io/v1beta1", "DataVolume"}
	Claim                  = ObjectHint{"v1", "PersistentVolumeClaim"}
	Secret                 = ObjectHint{"v1", "Secret"}
)

// Result is a result of a task.
type Result struct {
	Name        string
	Description string
}

// SecretMount is a Secret, named by a parameter, mounted as files for the task.
type SecretMount struct {
	// Param is the parameter that names the Secret.
	Param string
	// Path is where its keys appear as files.
	Path string
}

// Example is a way to use the task, for its README.
type Example struct {
	Title  string
	Params map[string]any
}

// Param returns the declared parameter of that name.
func (t *Task) Param(name string) (Param, bool) {
	for _, p := range t.Params {
		if p.Name == name {
			return p, true
		}
	}
	return Param{}, false
}

// Exit is an error that ends the program with Code.
type Exit struct {
	Code int
	Err  error
}

// Error returns the cause's text.
func (e *Exit) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Exit) Unwrap() error { return e.Err }

// ExitCode is the code with which the task ends.
func (e *Exit) ExitCode() int { return e.Code }

// Coded gives err the exit code code; it keeps a code that err already has, and nil is nil.
func Coded(code int, err error) error {
	var coded *Exit
	if err == nil || errors.As(err, &coded) {
		return err
	}
	return &Exit{Code: code, Err: err}
}
