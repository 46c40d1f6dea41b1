package pipelines_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	templatev1 "github.com/openshift/api/template/v1"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/catalog/template"
	"github.com/slipway-vm/slipway/pipelines"
	"github.com/slipway-vm/slipway/tasks"
	"github.com/slipway-vm/slipway/tasks/declare"
)

func read(t *testing.T, path string, out any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// A pipeline names only tasks that there are, and gives them only parameters that they have.
func TestPipelinesAreWhatTektonTakes(t *testing.T) {
	paths, err := fs.Glob(pipelines.Manifests, "*/pipeline.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("pipelines: %v, %v", paths, err)
	}
	for _, path := range paths {
		var p tektonv1.Pipeline
		read(t, path, &p)
		p.SetDefaults(t.Context())
		if err := p.Validate(t.Context()); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		var run tektonv1.PipelineRun
		read(t, filepath.Join(filepath.Dir(path), "run.yaml"), &run)
		run.SetDefaults(t.Context())
		run.Name = "x" // generateName
		if err := run.Validate(t.Context()); err != nil {
			t.Errorf("run of %s: %v", path, err)
		}
		for _, task := range append(slices.Clone(p.Spec.Tasks), p.Spec.Finally...) {
			checkTask(t, &p, &run, task)
		}
		for _, param := range run.Spec.Params {
			if !slices.ContainsFunc(p.Spec.Params, func(s tektonv1.ParamSpec) bool { return s.Name == param.Name }) {
				t.Errorf("run of %s: the pipeline has no parameter %s", path, param.Name)
			}
		}
		for _, param := range p.Spec.Params {
			if param.Default == nil && !slices.ContainsFunc(run.Spec.Params, func(s tektonv1.Param) bool { return s.Name == param.Name }) {
				t.Errorf("run of %s: parameter %s is missing", path, param.Name)
			}
		}
	}
}

func checkTask(t *testing.T, p *tektonv1.Pipeline, run *tektonv1.PipelineRun, task tektonv1.PipelineTask) {
	t.Helper()
	i := slices.IndexFunc(tasks.All(), func(c *declare.Task) bool { return c.Name == task.TaskRef.Name })
	if i < 0 {
		t.Errorf("%s: %s is no task", p.Name, task.TaskRef.Name)
		return
	}
	declared := tasks.All()[i]
	for _, param := range task.Params {
		if _, ok := declared.Param(param.Name); !ok {
			t.Errorf("%s: task %s has no parameter %s", p.Name, declared.Name, param.Name)
		}
	}
	for _, param := range task.Params {
		if param.Name == "manifest" {
			checkManifest(t, p, run, param.Value.StringVal)
		}
	}
	if len(declared.Rules) == 0 {
		return
	}
	account := ""
	for _, spec := range run.Spec.TaskRunSpecs {
		if spec.PipelineTaskName == task.Name {
			account = spec.ServiceAccountName
		}
	}
	if account != declared.Name+"-task" {
		t.Errorf("%s: %s runs as %q in run.yaml, not as %s-task", p.Name, task.Name, account, declared.Name)
	}
}

// checkManifest makes sure that a manifest within the pipeline, filled in as the run does, decodes strictly.
func checkManifest(t *testing.T, p *tektonv1.Pipeline, run *tektonv1.PipelineRun, manifest string) {
	t.Helper()
	for _, param := range run.Spec.Params {
		manifest = strings.ReplaceAll(manifest, "$(params."+param.Name+")", param.Value.StringVal)
	}
	for _, param := range p.Spec.Params {
		if param.Default != nil {
			manifest = strings.ReplaceAll(manifest, "$(params."+param.Name+")", param.Default.StringVal)
		}
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(manifest), &kind); err != nil {
		t.Errorf("%s: %v in\n%s", p.Name, err, manifest)
		return
	}
	objects := map[string]client.Object{"DataVolume": &cdiv1.DataVolume{}, "DataSource": &cdiv1.DataSource{}, "VirtualMachine": &virtv1.VirtualMachine{}}
	object, ok := objects[kind.Kind]
	if !ok {
		t.Errorf("%s: a manifest of kind %q", p.Name, kind.Kind)
		return
	}
	if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
		t.Errorf("%s: %v in\n%s", p.Name, err, manifest)
	}
}

// A template turns into a VM that decodes strictly.
func TestTemplatesMakeVMs(t *testing.T) {
	paths, err := fs.Glob(pipelines.Manifests, "*/template.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("templates: %v, %v", paths, err)
	}
	for _, path := range paths {
		var tmpl templatev1.Template
		read(t, path, &tmpl)
		values := map[string]string{}
		for _, p := range tmpl.Parameters {
			if p.Required && p.Generate == "" {
				values[p.Name] = "x-" + strings.ToLower(p.Name)
			}
		}
		if _, ok := values["DISK_SIZE"]; ok {
			values["DISK_SIZE"] = "5Gi"
		}
		out, err := template.Process(&tmpl, values)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(out.Unused) > 0 {
			t.Errorf("%s: nothing refers to %v", path, out.Unused)
		}
		vm := &virtv1.VirtualMachine{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(out.Objects[0].Object, vm, true); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// With nothing changed only the first task of golden-image runs: each other one asks its results.
func TestAnUpToDateImageLeavesNothingToDo(t *testing.T) {
	p := golden(t)
	first := p.Spec.Tasks[0].Name
	all := map[string]string{"upToDate": "true", "importCached": "true", "cachedSteps": "1"}
	imported := map[string]string{"upToDate": "false", "importCached": "true", "cachedSteps": "0"}
	customized := map[string]string{"upToDate": "false", "importCached": "true", "cachedSteps": "1"}
	nothing := map[string]string{"upToDate": "false", "importCached": "false", "cachedSteps": "0"}
	for _, c := range []struct {
		name    string
		results map[string]string
		skipped []string
	}{
		{"all", all, []string{"import", "keys", "customize", "boot", "wait", "check", "publish", "clean-up"}},
		{"imported", imported, []string{"import"}},
		{"customized", customized, []string{"import", "customize"}},
		{"nothing", nothing, nil},
	} {
		var skipped []string
		for _, task := range append(slices.Clone(p.Spec.Tasks), p.Spec.Finally...) {
			if strings.Contains(task.Name, "vm") {
				continue // makes a VM whenever one is asked for
			}
			whens := slices.Clone(task.When)
			for n := range whens {
				for result, value := range c.results {
					whens[n].Input = strings.ReplaceAll(whens[n].Input, "$(tasks."+first+".results."+result+")", value)
				}
			}
			if !whens.AllowsExecution(nil) {
				skipped = append(skipped, task.Name)
			}
		}
		if !slices.Equal(skipped, c.skipped) {
			t.Errorf("%s: %v are skipped, want %v", c.name, skipped, c.skipped)
		}
	}
}

// The first task looks up the very volume that the import makes, and the very commands of the customization.
func TestTheCacheIsAskedForWhatTheStepsDo(t *testing.T) {
	p := golden(t)
	param := func(task, name string) tektonv1.ParamValue {
		t.Helper()
		for _, candidate := range p.Spec.Tasks {
			for _, param := range candidate.Params {
				if candidate.Name == task && param.Name == name {
					return param.Value
				}
			}
		}
		t.Fatalf("%s has no parameter %s", task, name)
		return tektonv1.ParamValue{}
	}
	looked := strings.ReplaceAll(param("restore", "manifest").StringVal, "generateName: $(params.imageName)-", "name: $(tasks.restore.results.volume)")
	if made := param("import", "manifest").StringVal; looked != made {
		t.Errorf("looked up:\n%s\nimported:\n%s", looked, made)
	}
	step := param("restore", "steps").ArrayVal
	if want := "disk-virt-customize\n" + param("customize", "virtCommands").StringVal + "\n"; len(step) != 1 || step[0] != want {
		t.Errorf("looked up: %q, want %q", step, want)
	}
}

func golden(t *testing.T) *tektonv1.Pipeline {
	t.Helper()
	p := &tektonv1.Pipeline{}
	read(t, "golden-image/pipeline.yaml", p)
	return p
}
