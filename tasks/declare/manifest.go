package declare

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// uid is the user that owns disks: qemu in all of the field's images.
const uid = 107

// Paths in a task's pod.
const (
	diskMount  = "/mnt/targetpvc"
	resultsDir = "/tekton/results"
	scratchDir = "/var/tmp/slipway"
)

// Manifests returns what Tekton needs to run the task: the Task, and its ServiceAccount with a
// Role of just its verbs.
func (t *Task) Manifests() []any {
	objects := []any{t.tekton()}
	if len(t.Rules) == 0 {
		return objects
	}
	name := t.Name + "-task"
	return append(objects,
		&corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.labels()},
		},
		&rbacv1.Role{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.labels()},
			Rules:      t.Rules,
		},
		&rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.labels()},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name}},
		})
}

// YAML returns the manifests as one file.
func (t *Task) YAML() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# Generated from task.go by `make generate`. DO NOT EDIT.\n")
	for _, object := range t.Manifests() {
		data, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("writing %T of task %s: %w", object, t.Name, err)
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes(), nil
}

func (t *Task) labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":      t.Name,
		"app.kubernetes.io/component": "task",
		"app.kubernetes.io/part-of":   "slipway",
	}
}

func (t *Task) tekton() *tektonv1.Task {
	task := &tektonv1.Task{
		TypeMeta: metav1.TypeMeta{APIVersion: tektonv1.SchemeGroupVersion.String(), Kind: "Task"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        t.Name,
			Labels:      t.catalogLabels(),
			Annotations: t.annotations(),
		},
		Spec: tektonv1.TaskSpec{
			Description: t.Summary,
			Params:      t.paramSpecs(),
			Results:     t.resultSpecs(),
			Steps:       []tektonv1.Step{t.step()},
			Volumes:     t.volumes(),
			Workspaces:  t.workspaces(),
		},
	}
	return task
}

func (t *Task) paramSpecs() tektonv1.ParamSpecs {
	var specs tektonv1.ParamSpecs
	for _, p := range t.Params {
		specs = append(specs, p.spec())
		for _, name := range p.Earlier {
			earlier := Param{Name: name, Array: p.Array, Description: "Earlier name of " + p.Name + "."}
			specs = append(specs, earlier.spec())
		}
	}
	return specs
}

// spec is the parameter as Tekton declares it. One that has earlier names is optional for
// Tekton even when it is required, for a run may use another name.
func (p Param) spec() tektonv1.ParamSpec {
	spec := tektonv1.ParamSpec{Name: p.Name, Description: p.Description, Type: tektonv1.ParamTypeString}
	if p.Array {
		spec.Type = tektonv1.ParamTypeArray
	}
	switch {
	case p.Required && len(p.Earlier) == 0:
	case p.Array:
		spec.Default = &tektonv1.ParamValue{Type: tektonv1.ParamTypeArray, ArrayVal: []string{}}
	default:
		spec.Default = tektonv1.NewStructuredValues(p.Default)
	}
	return spec
}

func (t *Task) resultSpecs() []tektonv1.TaskResult {
	specs := make([]tektonv1.TaskResult, len(t.Results))
	for i, r := range t.Results {
		specs[i] = tektonv1.TaskResult{Name: r.Name, Description: r.Description, Type: tektonv1.ResultsTypeString}
	}
	return specs
}

func (t *Task) step() tektonv1.Step {
	return tektonv1.Step{
		Name:         t.Name,
		Image:        string(t.Image),
		Command:      []string{t.binary(), "task", t.Name},
		Args:         t.arrayArgs(),
		Env:          t.env(),
		VolumeMounts: t.mounts(),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			RunAsNonRoot:             new(true),
			RunAsUser:                ptr.To[int64](uid),
			RunAsGroup:               ptr.To[int64](uid),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		ComputeResources: corev1.ResourceRequirements{Requests: t.requests()},
	}
}

// requests are what the step asks the cluster for. With the image Guestfs the tools work on a disk in
// an appliance, which gets of a busy node what a VM of one processor gets.
func (t *Task) requests() corev1.ResourceList {
	cpu, memory := "10m", "48Mi"
	if t.Image == Guestfs {
		cpu, memory = "100m", "1Gi"
	}
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(cmp.Or(t.Memory, memory)),
	}
}

func (t *Task) binary() string {
	if t.Image == Guestfs {
		return "/usr/bin/slipway"
	}
	return "/slipway"
}

// arrayArgs are the array parameters, each behind its marker. Tekton replaces a lone
// $(params.x[*]) by one argument an item, so no item is ever split.
func (t *Task) arrayArgs() []string {
	var args []string
	for _, p := range t.Params {
		if !p.Array {
			continue
		}
		for _, name := range p.names() {
			args = append(args, marker("$(context.taskRun.uid)", name), "$(params."+name+"[*])")
		}
	}
	return args
}

func (t *Task) env() []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: envNamespace, Value: "$(context.taskRun.namespace)"},
		{Name: envTaskRunName, Value: "$(context.taskRun.name)"},
		{Name: envTaskRunUID, Value: "$(context.taskRun.uid)"},
		{Name: envRetry, Value: "$(context.task.retry-count)"},
		{Name: envResults, Value: resultsDir},
	}
	if t.Disk != "" {
		env = append(env, corev1.EnvVar{Name: envDisk, Value: diskMount + "/disk.img"})
	}
	if t.Secret != nil {
		env = append(env, corev1.EnvVar{Name: envSecret, Value: t.Secret.Path})
	}
	if t.Image == Guestfs {
		env = append(env, corev1.EnvVar{Name: "HOME", Value: scratchDir}, corev1.EnvVar{Name: "TMPDIR", Value: scratchDir})
	}
	for _, p := range t.Params {
		if p.Array {
			continue
		}
		for _, name := range p.names() {
			env = append(env, corev1.EnvVar{Name: Param{Name: name}.Env(), Value: "$(params." + name + ")"})
		}
	}
	return env
}

func (t *Task) volumes() []corev1.Volume {
	var volumes []corev1.Volume
	if t.Disk != "" {
		volumes = append(volumes, corev1.Volume{
			Name: "targetpvc",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: "$(params." + t.Disk + ")",
			}},
		})
	}
	if t.Image == Guestfs {
		volumes = append(volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	if t.Secret != nil {
		volumes = append(volumes, corev1.Volume{
			Name: "secret",
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: "$(params." + t.Secret.Param + ")", Optional: new(true),
			}},
		})
	}
	return volumes
}

func (t *Task) mounts() []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	if t.Disk != "" {
		mounts = append(mounts, corev1.VolumeMount{Name: "targetpvc", MountPath: diskMount})
	}
	if t.Image == Guestfs {
		mounts = append(mounts, corev1.VolumeMount{Name: "scratch", MountPath: scratchDir})
	}
	if t.Secret != nil {
		mounts = append(mounts, corev1.VolumeMount{Name: "secret", MountPath: t.Secret.Path, ReadOnly: true})
	}
	return slices.Clip(mounts)
}

func (t *Task) workspaces() []tektonv1.WorkspaceDeclaration {
	var workspaces []tektonv1.WorkspaceDeclaration
	for i := range t.Data {
		name := fmt.Sprintf("data%02d", i+1)
		workspaces = append(workspaces, tektonv1.WorkspaceDeclaration{
			Name: name, Optional: true, MountPath: "/" + name,
			Description: "Files that the commands may use, at /" + name + ".",
		})
	}
	return workspaces
}
