package gitops_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	templatev1 "github.com/openshift/api/template/v1"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/pipelines"
	"github.com/slipway-vm/slipway/tasks"
)

// build builds the kustomization of a folder.
func build(t *testing.T, folder string) resmap.ResMap {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatalf("building %s: %v", folder, err)
	}
	return made
}

// built are the objects of a kustomization, decoded strictly.
type built struct {
	tasks     []*tektonv1.Task
	pipelines []*tektonv1.Pipeline
	kinds     map[string][]string
	bindings  []*rbacv1.RoleBinding
}

func decode(t *testing.T, made resmap.ResMap) built {
	t.Helper()
	out := built{kinds: map[string][]string{}}
	for _, resource := range made.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object := emptyOf(t, resource.GetKind())
		if err := yaml.UnmarshalStrict(text, object); err != nil {
			t.Errorf("%s %s: %v", resource.GetKind(), resource.GetName(), err)
		}
		out.kinds[resource.GetKind()] = append(out.kinds[resource.GetKind()], resource.GetName())
		switch object := object.(type) {
		case *tektonv1.Task:
			object.SetDefaults(t.Context())
			if err := object.Validate(t.Context()); err != nil {
				t.Errorf("Task %s: %v", object.Name, err)
			}
			out.tasks = append(out.tasks, object)
		case *tektonv1.Pipeline:
			object.SetDefaults(t.Context())
			if err := object.Validate(t.Context()); err != nil {
				t.Errorf("Pipeline %s: %v", object.Name, err)
			}
			out.pipelines = append(out.pipelines, object)
		case *rbacv1.RoleBinding:
			out.bindings = append(out.bindings, object)
		}
	}
	return out
}

func emptyOf(t *testing.T, kind string) client.Object {
	t.Helper()
	switch kind {
	case "Task":
		return &tektonv1.Task{}
	case "Pipeline":
		return &tektonv1.Pipeline{}
	case "ServiceAccount":
		return &corev1.ServiceAccount{}
	case "Namespace":
		return &corev1.Namespace{}
	case "Role":
		return &rbacv1.Role{}
	case "RoleBinding":
		return &rbacv1.RoleBinding{}
	case "ConfigMap":
		return &corev1.ConfigMap{}
	case "Template":
		return &templatev1.Template{}
	}
	t.Fatalf("kind %s is not expected in the kustomizations", kind)
	return nil
}

// shipped are the names of what tasks/kustomization.yaml and pipelines/kustomization.yaml name.
func shipped(t *testing.T) (taskNames, pipelineNames []string) {
	t.Helper()
	plain := decode(t, build(t, ".."))
	return plain.kinds["Task"], plain.kinds["Pipeline"]
}

// Whatever is in the folders of tasks and pipelines is in the kustomizations too.
func TestKustomizationsNameEverything(t *testing.T) {
	taskNames, pipelineNames := shipped(t)
	for _, task := range tasks.All() {
		if !slices.Contains(taskNames, task.Name) {
			t.Errorf("tasks/kustomization.yaml lacks %s/task.yaml", task.Name)
		}
	}
	paths, err := fs.Glob(pipelines.Manifests, "*/pipeline.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("pipelines: %v, %v", paths, err)
	}
	for _, path := range paths {
		if !slices.Contains(pipelineNames, filepath.Dir(path)) {
			t.Errorf("pipelines/kustomization.yaml lacks %s", path)
		}
	}
}

func TestANamespaceGetsEverythingWithItsOwnImages(t *testing.T) {
	taskNames, pipelineNames := shipped(t)
	got := decode(t, build(t, overlay(t, "namespace")))
	if len(got.tasks) != len(taskNames) || len(got.pipelines) != len(pipelineNames) || len(got.kinds["Role"]) == 0 || len(got.kinds["Role"]) != len(got.kinds["ServiceAccount"]) {
		t.Errorf("kinds %v", got.kinds)
	}
	images := map[string]bool{}
	for _, task := range got.tasks {
		if task.Namespace != "builds" {
			t.Errorf("Task %s is in namespace %q", task.Name, task.Namespace)
		}
		for _, step := range task.Spec.Steps {
			images[step.Image] = true
		}
	}
	if len(images) != 2 || !images["registry.example.com/slipway/slipway:0123456789ab"] || !images["registry.example.com/slipway/slipway-guestfs:ba9876543210"] {
		t.Errorf("images %v, want those of the example", images)
	}
	for _, binding := range got.bindings {
		if binding.Subjects[0].Namespace != "builds" && binding.Subjects[0].Namespace != "" || !slices.Contains(got.kinds["Role"], binding.RoleRef.Name) {
			t.Errorf("RoleBinding %s: subjects %v, role %s", binding.Name, binding.Subjects, binding.RoleRef.Name)
		}
	}
}

// Without the component kustomize leaves the images of steps as they are; with it, it does not.
func TestTheComponentFindsImagesOfSteps(t *testing.T) {
	task := "apiVersion: tekton.dev/v1\nkind: Task\nmetadata: {name: own}\nspec: {steps: [{name: a, image: example.com/a:1, command: [a]}], sidecars: [{name: b, image: example.com/a:1}]}\n"
	kustomization := "resources: [task.yaml]\nimages: [{name: example.com/a, newName: mirror.example.com/a, digest: 'sha256:" + strings.Repeat("0123456789abcdef", 4) + "'}]\n"
	for component, want := range map[string]string{
		"": "example.com/a:1",
		"components: [../slipway/pipelines/gitops/components/images]\n": "mirror.example.com/a@sha256:" + strings.Repeat("0123456789abcdef", 4),
	} {
		folder := overlay(t, "")
		write(t, filepath.Join(folder, "task.yaml"), task)
		write(t, filepath.Join(folder, "kustomization.yaml"), kustomization+component)
		got := decode(t, build(t, folder)).tasks[0].Spec
		if got.Steps[0].Image != want || got.Sidecars[0].Image != want {
			t.Errorf("with %q the images are %s and %s, want %s", component, got.Steps[0].Image, got.Sidecars[0].Image, want)
		}
	}
}

func TestATeamGetsRightsAndNoTasks(t *testing.T) {
	taskNames, _ := shipped(t)
	got := decode(t, build(t, overlay(t, "team")))
	if len(got.tasks)+len(got.pipelines) != 0 || len(got.kinds["Role"]) == 0 || len(got.kinds["Role"]) > len(taskNames) ||
		len(got.kinds["RoleBinding"]) != len(got.kinds["Role"]) || len(got.kinds["Template"]) == 0 {
		t.Errorf("kinds %v", got.kinds)
	}
}

func TestTheCatalogueHasTasksAndNoRights(t *testing.T) {
	taskNames, pipelineNames := shipped(t)
	got := decode(t, build(t, overlay(t, "catalog")))
	if len(got.tasks) != len(taskNames) || len(got.pipelines) != len(pipelineNames) ||
		len(got.kinds["Role"])+len(got.kinds["RoleBinding"])+len(got.kinds["ServiceAccount"])+len(got.kinds["Template"])+len(got.kinds["ConfigMap"]) != 0 {
		t.Errorf("kinds %v", got.kinds)
	}
}

// overlay copies an example beside a copy of the sources, as its user has it.
func overlay(t *testing.T, example string) string {
	t.Helper()
	root := t.TempDir()
	for _, part := range []string{"pipelines", "tasks"} {
		if err := os.CopyFS(filepath.Join(root, "slipway", part), yamlOnly{os.DirFS(filepath.Join("..", "..", part))}); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(root, "mine")
	if example == "" {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	} else if err := os.CopyFS(folder, os.DirFS(filepath.Join("examples", example))); err != nil {
		t.Fatal(err)
	}
	return folder
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// yamlOnly is a file system without what is no YAML.
type yamlOnly struct{ fs.FS }

// ReadDir leaves out files that are no YAML.
func (y yamlOnly) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(y.FS, name)
	return slices.DeleteFunc(all, func(e fs.DirEntry) bool { return !e.IsDir() && filepath.Ext(e.Name()) != ".yaml" }), err
}
