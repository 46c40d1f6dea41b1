package tasks_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	strict "sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tasks"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// documents are the parts of the task's file.
func documents(t *testing.T, task *declare.Task) [][]byte {
	t.Helper()
	data, err := fs.ReadFile(tasks.Manifests, task.Name+"/task.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, document)
	}
}

// decoded is the Task of the task's file, as Tekton's webhook reads it: unknown fields are refused.
func decoded(t *testing.T, task *declare.Task) *tektonv1.Task {
	t.Helper()
	for _, document := range documents(t, task) {
		if !strings.Contains(string(document), "\nkind: Task\n") && !strings.HasPrefix(string(document), "kind: Task\n") {
			continue
		}
		made := &tektonv1.Task{}
		if err := strict.UnmarshalStrict(document, made); err != nil {
			t.Fatal(err)
		}
		return made
	}
	t.Fatal("its file holds no Task")
	return nil
}

func forEach(t *testing.T, test func(t *testing.T, task *declare.Task)) {
	t.Helper()
	for _, task := range tasks.All() {
		t.Run(task.Name, func(t *testing.T) { test(t, task) })
	}
}

func TestFilesAreWhatIsDeclared(t *testing.T) {
	forEach(t, func(t *testing.T, task *declare.Task) {
		files, err := task.Files()
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range files {
			got, err := os.ReadFile(filepath.Join(task.Name, name))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s/%s is not what is declared; run make generate (%v)", task.Name, name, err)
			}
		}
	})
}

func TestTasksAreWhatTektonTakes(t *testing.T) {
	forEach(t, func(t *testing.T, task *declare.Task) {
		made := decoded(t, task)
		if err := validation.ValidateObjectMeta(&made.ObjectMeta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata")).ToAggregate(); err != nil {
			t.Error(err)
		}
		before := made.DeepCopy()
		made.SetDefaults(t.Context())
		if err := made.Validate(t.Context()); err != nil {
			t.Error(err)
		}
		// What Tekton fills in shows as a difference in tools that compare with git.
		got, _ := strict.Marshal(made)
		want, _ := strict.Marshal(before)
		if !bytes.Equal(got, want) {
			t.Errorf("Tekton's defaults change it to:\n%s", got)
		}
		for _, step := range made.Spec.Steps {
			if len(step.Command) == 0 || step.Script != "" {
				t.Errorf("step %s has no command: Tekton would ask a registry for it, or run a shell", step.Name)
			}
			for _, word := range append(slices.Clone(step.Command), step.Args...) {
				if strings.Contains(word, "$(params.") && !regexp.MustCompile(`^\$\(params\.[\w-]+\[\*\]\)$`).MatchString(word) {
					t.Errorf("step %s has a parameter inside the word %q", step.Name, word)
				}
			}
		}
	})
}

// The pod that Tekton makes of a task must be admitted where Pod Security is "restricted".
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	verdict := func(spec *corev1.PodSpec) policy.AggregateCheckResult {
		return policy.AggregateCheckResults(evaluator.EvaluatePod(level, &metav1.ObjectMeta{}, spec))
	}
	if verdict(&corev1.PodSpec{Containers: []corev1.Container{{Name: "loose"}}}).Allowed {
		t.Fatal("a container without a security context is admitted; the test says nothing")
	}
	forEach(t, func(t *testing.T, task *declare.Task) {
		made := decoded(t, task)
		spec := &corev1.PodSpec{Volumes: made.Spec.Volumes}
		for _, step := range made.Spec.Steps {
			spec.Containers = append(spec.Containers, *step.ToK8sContainer())
		}
		for _, sidecar := range made.Spec.Sidecars {
			spec.Containers = append(spec.Containers, *sidecar.ToK8sContainer())
		}
		if v := verdict(spec); !v.Allowed {
			t.Errorf("it is refused: %s", v.ForbiddenDetail())
		}
	})
}

// A Role names what the task uses, and nothing of everything.
func TestRolesAreNarrow(t *testing.T) {
	forEach(t, func(t *testing.T, task *declare.Task) {
		roles := 0
		for _, document := range documents(t, task) {
			if !strings.Contains(string(document), "\nkind: Role\n") {
				continue
			}
			roles++
			var role rbacv1.Role
			if err := strict.UnmarshalStrict(document, &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				if words := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs); slices.Contains(words, "*") || len(rule.APIGroups) == 0 || len(rule.Resources) == 0 || len(rule.Verbs) == 0 {
					t.Errorf("a rule is too wide, or empty: %+v", rule)
				}
			}
		}
		if want := min(1, len(task.Rules)); roles != want {
			t.Errorf("it has %d Roles, want %d", roles, want)
		}
	})
}

func TestEverythingIsDescribed(t *testing.T) {
	forEach(t, func(t *testing.T, task *declare.Task) {
		made := decoded(t, task)
		env := map[string]string{}
		for _, p := range task.Params {
			if !strings.HasSuffix(p.Description, ".") || made.Annotations[p.HintPrefix()+"type"] == "" {
				t.Errorf("parameter %s has no description (a sentence) or no hint for forms", p.Name)
			}
			for _, name := range append([]string{p.Name}, p.Earlier...) {
				if other := env[declare.Param{Name: name}.Env()]; other != "" {
					t.Errorf("parameters %s and %s have one environment variable", name, other)
				}
				env[declare.Param{Name: name}.Env()] = name
			}
		}
		for _, r := range task.Results {
			if r.Description == "" {
				t.Errorf("result %s has no description", r.Name)
			}
		}
		for _, w := range made.Spec.Workspaces {
			if w.Description == "" {
				t.Errorf("workspace %s has no description", w.Name)
			}
		}
		if task.Title == "" || task.Details == "" || !strings.HasSuffix(task.Summary, ".") || len(task.Examples) == 0 {
			t.Error("it has no title, summary (a sentence), details or examples")
		}
		if made.Annotations["tekton.dev/pipelines.minVersion"] == "" || made.Labels["app.kubernetes.io/version"] == "" {
			t.Error("it has no version, or no oldest version of Tekton")
		}
		for _, e := range task.Examples {
			for _, p := range task.Params {
				if _, given := e.Params[p.Name]; p.Required && !given {
					t.Errorf("example %q lacks parameter %s", e.Title, p.Name)
				}
			}
		}
	})
}

// What hubs list is a version of semver, and the image that the step runs in.
func TestHubsMetadata(t *testing.T) {
	forEach(t, func(t *testing.T, task *declare.Task) {
		data, err := os.ReadFile(filepath.Join(task.Name, "artifacthub-pkg.yml"))
		if err != nil {
			t.Fatal(err)
		}
		var hub struct {
			Name, Version, CreatedAt, DisplayName, Description string
			ContainersImages                                   []struct{ Image string }
		}
		if err := strict.Unmarshal(data, &hub); err != nil {
			t.Fatal(err)
		}
		if hub.Name != task.Name || !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(hub.Version) || hub.CreatedAt == "" || hub.DisplayName == "" || hub.Description == "" {
			t.Errorf("it says %+v", hub)
		}
		images := map[string]bool{}
		for _, step := range decoded(t, task).Spec.Steps {
			images[step.Image] = true
		}
		if len(hub.ContainersImages) != len(images) || !images[hub.ContainersImages[0].Image] {
			t.Errorf("it names the images %v, the steps %v", hub.ContainersImages, slices.Collect(maps.Keys(images)))
		}
	})
}

// The kustomization and the page of all tasks name each of them.
func TestEveryTaskIsListed(t *testing.T) {
	data, err := os.ReadFile("kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct{ Resources []string }
	if err := strict.Unmarshal(data, &kustomization); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/tasks.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, task := range tasks.All() {
		want = append(want, task.Name+"/task.yaml")
		if !strings.Contains(string(page), "["+task.Name+"](../tasks/"+task.Name+"/README.md)") {
			t.Errorf("docs/tasks.md does not name %s", task.Name)
		}
	}
	if !slices.Equal(kustomization.Resources, want) {
		t.Errorf("kustomization.yaml has %v, want %v", kustomization.Resources, want)
	}
}
