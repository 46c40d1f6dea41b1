package gitops_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/pipelines/gitops"
)

// documents are the objects of a file.
func documents(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	data, err := fs.ReadFile(gitops.Files, path)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for part := range bytes.SplitSeq(data, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(part, &object.Object); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, object)
	}
	return all
}

// strictly decodes what an object holds.
func strictly(t *testing.T, where string, object, out any) {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, out); err != nil {
		t.Errorf("%s: %v", where, err)
	}
}

// Every file holds whole objects; those whose types this module knows decode strictly. Argo CD,
// Flux, Triggers and Pipelines-as-Code have no types here: their objects are held to what is
// checked in the tests below.
func TestEveryFileHoldsObjects(t *testing.T) {
	known := map[string]func() any{
		"v1/ConfigMap":                                    func() any { return &corev1.ConfigMap{} },
		"v1/Namespace":                                    func() any { return &corev1.Namespace{} },
		"v1/ServiceAccount":                               func() any { return &corev1.ServiceAccount{} },
		"tekton.dev/v1/PipelineRun":                       func() any { return &tektonv1.PipelineRun{} },
		"rbac.authorization.k8s.io/v1/RoleBinding":        func() any { return &rbacv1.RoleBinding{} },
		"rbac.authorization.k8s.io/v1/ClusterRoleBinding": func() any { return &rbacv1.ClusterRoleBinding{} },
	}
	decoded := 0
	err := fs.WalkDir(gitops.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(filepath.Base(path), "kustomiz") {
			return err
		}
		for _, object := range documents(t, path) {
			kind := object.GetAPIVersion() + "/" + object.GetKind()
			if object.GetKind() == "" || object.GetAPIVersion() == "" || object.GetName()+object.GetGenerateName() == "" {
				t.Errorf("%s: an object without kind, apiVersion or name", path)
			}
			if empty, ok := known[kind]; ok {
				strictly(t, path, object.Object, empty())
				decoded++
			}
		}
		return nil
	})
	if err != nil || decoded < 9 {
		t.Errorf("%d objects decoded, %v", decoded, err)
	}
}

// checkRun holds a run to the pipeline that it names.
func checkRun(t *testing.T, where, pipeline string, run *tektonv1.PipelineRun) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", pipeline, "pipeline.yaml"))
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	var p tektonv1.Pipeline
	if err := yaml.UnmarshalStrict(data, &p); err != nil {
		t.Fatal(err)
	}
	run.SetDefaults(t.Context())
	run.Name = "x" // generateName
	if err := run.Validate(t.Context()); err != nil {
		t.Errorf("%s: %v", where, err)
	}
	for _, given := range run.Spec.Params {
		n := slices.IndexFunc(p.Spec.Params, func(s tektonv1.ParamSpec) bool { return s.Name == given.Name })
		if n < 0 || p.Spec.Params[n].Type != given.Value.Type {
			t.Errorf("%s: the pipeline has no parameter %s of type %s", where, given.Name, given.Value.Type)
		}
	}
	for _, wanted := range p.Spec.Params {
		if wanted.Default == nil && !slices.ContainsFunc(run.Spec.Params, func(g tektonv1.Param) bool { return g.Name == wanted.Name }) {
			t.Errorf("%s: parameter %s is missing", where, wanted.Name)
		}
	}
	all := append(slices.Clone(p.Spec.Tasks), p.Spec.Finally...)
	for _, spec := range run.Spec.TaskRunSpecs {
		n := slices.IndexFunc(all, func(task tektonv1.PipelineTask) bool { return task.Name == spec.PipelineTaskName })
		if n < 0 || spec.ServiceAccountName != all[n].TaskRef.Name+"-task" {
			t.Errorf("%s: taskRunSpecs: %s as %s", where, spec.PipelineTaskName, spec.ServiceAccountName)
		}
	}
}

func TestPipelinesAsCodeRunsWhatThereIs(t *testing.T) {
	path := "examples/pipelines-as-code/.tekton/golden-image.yaml"
	var run tektonv1.PipelineRun
	strictly(t, path, documents(t, path)[0].Object, &run)
	params := map[string]string{}
	for _, p := range run.Spec.PipelineRef.Params {
		params[p.Name] = p.Value.StringVal
	}
	if run.GenerateName == "" || run.Spec.PipelineRef.Resolver != "cluster" || params["kind"] != "pipeline" {
		t.Errorf("%s: %+v", path, run.Spec.PipelineRef)
	}
	checkRun(t, path, params["name"], filled(t, path))
	var shipped tektonv1.PipelineRun
	data, err := os.ReadFile("../golden-image/run.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &shipped); err != nil {
		t.Fatal(err)
	}
	for _, spec := range shipped.Spec.TaskRunSpecs {
		if !slices.ContainsFunc(run.Spec.TaskRunSpecs, func(s tektonv1.PipelineTaskRunSpec) bool { return s.PipelineTaskName == spec.PipelineTaskName }) {
			t.Errorf("%s: taskRunSpecs lacks %s, which pipelines/golden-image/run.yaml has", path, spec.PipelineTaskName)
		}
	}
}

// variables are those that Pipelines-as-Code fills in by itself, with values as a push gives them.
var variables = map[string]string{
	"revision": "4f9c1d0e8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d", "repo_url": "https://git.example.com/builds", "repo_owner": "platform", "repo_name": "builds",
	"source_branch": "main", "target_branch": "main", "sender": "somebody", "event_type": "push", "source_url": "https://git.example.com/builds",
	"target_namespace": "builds", "git_auth_secret": "pac-token", "pull_request_number": "7", "trigger_comment": "/test",
}

// filled is the run of a file once Pipelines-as-Code has filled in its variables, decoded strictly.
func filled(t *testing.T, path string) *tektonv1.PipelineRun {
	t.Helper()
	data, err := fs.ReadFile(gitops.Files, path)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	text := regexp.MustCompile(`{{ *([a-z_.]+) *}}`).ReplaceAllStringFunc(string(data), func(match string) string {
		value, known := variables[strings.Trim(match, "{} ")]
		if !known {
			t.Errorf("%s: Pipelines-as-Code knows no variable %s", path, match)
		}
		found++
		return value
	})
	if found == 0 || strings.Contains(text, "{{") {
		t.Errorf("%s: %d variables are filled in of\n%s", path, found, text)
	}
	run := &tektonv1.PipelineRun{}
	if err := yaml.UnmarshalStrict([]byte(text), run); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for name := range run.Annotations {
		known := []string{"on-event", "on-target-branch", "on-path-change", "on-path-change-ignore", "on-cel-expression", "max-keep-runs", "cancel-in-progress", "task", "pipeline"}
		if key, ours := strings.CutPrefix(name, "pipelinesascode.tekton.dev/"); ours && !slices.Contains(known, key) {
			t.Errorf("%s: Pipelines-as-Code knows no annotation %s", path, name)
		}
	}
	return run
}

// What a trigger makes is a run of a pipeline that there is, and its parts name each other.
func TestTriggersRunWhatThereIs(t *testing.T) {
	path := "examples/triggers/triggers.yaml"
	parts := map[string]*unstructured.Unstructured{}
	for _, object := range documents(t, path) {
		parts[object.GetKind()] = object
	}
	listener, template, binding := parts["EventListener"], parts["TriggerTemplate"], parts["TriggerBinding"]
	if listener == nil || template == nil || binding == nil {
		t.Fatalf("%s has %v", path, parts)
	}
	var spec struct {
		ServiceAccountName string `json:"serviceAccountName"`
		Triggers           []struct {
			Name         string                 `json:"name"`
			Interceptors []map[string]any       `json:"interceptors"`
			Bindings     []struct{ Ref string } `json:"bindings"`
			Template     struct{ Ref string }   `json:"template"`
		} `json:"triggers"`
	}
	strictly(t, path, listener.Object["spec"], &spec)
	trigger := spec.Triggers[0]
	if spec.ServiceAccountName != parts["ServiceAccount"].GetName() || trigger.Bindings[0].Ref != binding.GetName() || trigger.Template.Ref != template.GetName() {
		t.Errorf("%s: the listener names %+v", path, spec)
	}
	var made struct {
		Params []struct {
			Name    string `json:"name"`
			Default string `json:"default"`
		} `json:"params"`
		ResourceTemplates []map[string]any `json:"resourcetemplates"`
	}
	strictly(t, path, template.Object["spec"], &made)
	text, err := yaml.Marshal(made.ResourceTemplates[0])
	if err != nil {
		t.Fatal(err)
	}
	filled := string(text)
	for _, param := range made.Params {
		if !strings.Contains(filled, "$(tt.params."+param.Name+")") {
			t.Errorf("%s: nothing refers to %s", path, param.Name)
		}
		filled = strings.ReplaceAll(filled, "$(tt.params."+param.Name+")", "x")
	}
	var run tektonv1.PipelineRun
	if err := yaml.UnmarshalStrict([]byte(filled), &run); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if strings.Contains(filled, "$(") {
		t.Errorf("%s: a parameter that is not declared in\n%s", path, filled)
	}
	checkRun(t, path, run.Spec.PipelineRef.Name, &run)
}

// Argo CD tells its objects by an annotation, and leaves runs alone.
func TestArgoTracksByAnnotation(t *testing.T) {
	settings, _, err := unstructured.NestedStringMap(documents(t, "argocd/tracking.yaml")[0].Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	if settings["application.resourceTrackingMethod"] != "annotation" {
		t.Errorf("tracking %q", settings["application.resourceTrackingMethod"])
	}
	var excluded []struct {
		APIGroups []string `json:"apiGroups"`
		Kinds     []string `json:"kinds"`
		Clusters  []string `json:"clusters"`
	}
	if err := yaml.UnmarshalStrict([]byte(settings["resource.exclusions"]), &excluded); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(excluded[0].APIGroups, "tekton.dev") || !slices.Contains(excluded[0].Kinds, "PipelineRun") || !slices.Contains(excluded[0].Kinds, "TaskRun") {
		t.Errorf("excluded are %+v", excluded)
	}
}
