package pipelines_test

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/pipelines"
)

// shipped calls check with each pipeline of this folder and its run to copy.
func shipped(t *testing.T, check func(t *testing.T, p *tektonv1.Pipeline, run *tektonv1.PipelineRun)) {
	t.Helper()
	paths, err := fs.Glob(pipelines.Manifests, "*/pipeline.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("pipelines: %v, %v", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Dir(path), func(t *testing.T) {
			p, run := &tektonv1.Pipeline{}, &tektonv1.PipelineRun{}
			read(t, path, p)
			read(t, filepath.Join(filepath.Dir(path), "run.yaml"), run)
			check(t, p, run)
		})
	}
}

// What Tekton's webhook would fill in is written out, so that a GitOps tool sees no difference.
func TestDefaultsAreWrittenOut(t *testing.T) {
	shipped(t, func(t *testing.T, p *tektonv1.Pipeline, _ *tektonv1.PipelineRun) {
		filled := p.DeepCopy()
		filled.SetDefaults(t.Context())
		if !equality.Semantic.DeepEqual(p.Spec, filled.Spec) {
			a, _ := yaml.Marshal(p.Spec)
			b, _ := yaml.Marshal(filled.Spec)
			t.Errorf("Tekton's defaults change the pipeline.\nwritten:\n%s\nfilled in:\n%s", a, b)
		}
	})
}

// A catalog can show the pipeline: it has a title, and everything in it is described.
func TestAllIsDescribed(t *testing.T) {
	shipped(t, func(t *testing.T, p *tektonv1.Pipeline, run *tektonv1.PipelineRun) {
		if p.Annotations["tekton.dev/displayName"] == "" || p.Spec.Description == "" || p.Labels["app.kubernetes.io/part-of"] != "slipway" {
			t.Error("displayName, description or label app.kubernetes.io/part-of is missing")
		}
		readme, err := os.ReadFile(filepath.Join(p.Name, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, param := range p.Spec.Params {
			if param.Description == "" || !strings.Contains(string(readme), "| `"+param.Name+"` |") {
				t.Errorf("parameter %s has no description, or no row in README.md", param.Name)
			}
		}
		for _, result := range p.Spec.Results {
			if result.Description == "" || !strings.Contains(string(readme), "| `"+result.Name+"` |") {
				t.Errorf("result %s has no description, or no row in README.md", result.Name)
			}
		}
		if run.GenerateName == "" || run.Spec.PipelineRef == nil || run.Spec.PipelineRef.Name != p.Name {
			t.Error("run.yaml has no generateName, or names another pipeline")
		}
	})
}

// Tekton ends what has no timeout after an hour, or a pipeline before its tasks: each run says how long
// it may take, and that allows the longest chain of its tasks.
func TestTimeoutsAllowTheWaits(t *testing.T) {
	shipped(t, func(t *testing.T, p *tektonv1.Pipeline, run *tektonv1.PipelineRun) {
		if p.Name == "golden-image" || p.Name == "vm-from-template" {
			return // their waits end early; see their runs
		}
		timeouts := run.Spec.Timeouts
		if timeouts == nil || timeouts.Pipeline == nil || timeouts.Tasks == nil || timeouts.Finally == nil {
			t.Fatal("run.yaml lacks timeouts.pipeline, tasks or finally")
		}
		if timeouts.Tasks.Duration+timeouts.Finally.Duration > timeouts.Pipeline.Duration {
			t.Errorf("tasks %s and finally %s are longer than the pipeline's %s", timeouts.Tasks.Duration, timeouts.Finally.Duration, timeouts.Pipeline.Duration)
		}
		if longest := longestChain(t, p.Spec.Tasks); longest > timeouts.Tasks.Duration {
			t.Errorf("tasks may take %s, their longest chain %s", timeouts.Tasks.Duration, longest)
		}
		if longest := longestChain(t, p.Spec.Finally); longest > timeouts.Finally.Duration {
			t.Errorf("finally may take %s, its longest task %s", timeouts.Finally.Duration, longest)
		}
	})
}

// longestChain is how long tasks may take that wait for each other.
func longestChain(t *testing.T, list []tektonv1.PipelineTask) time.Duration {
	t.Helper()
	ends := map[string]time.Duration{}
	for range list {
		for _, task := range list {
			if task.Timeout == nil {
				t.Fatalf("task %s has no timeout", task.Name)
			}
			begin := time.Duration(0)
			for _, other := range task.Deps() {
				begin = max(begin, ends[other])
			}
			ends[task.Name] = begin + task.Timeout.Duration
		}
	}
	longest := time.Duration(0)
	for _, end := range ends {
		longest = max(longest, end)
	}
	return longest
}

// A VM that only the run needs belongs to it, and is deleted by finally under every outcome.
func TestFinallyIsComplete(t *testing.T) {
	shipped(t, func(t *testing.T, p *tektonv1.Pipeline, _ *tektonv1.PipelineRun) {
		for _, task := range p.Spec.Tasks {
			if !owned(task) || !strings.HasPrefix(task.TaskRef.Name, "create-vm") {
				continue
			}
			if !slices.ContainsFunc(p.Spec.Finally, func(f tektonv1.PipelineTask) bool {
				return f.TaskRef.Name == "cleanup-vm" && slices.ContainsFunc(f.Params, func(param tektonv1.Param) bool {
					return param.Name == "delete" && param.Value.StringVal == "true"
				})
			}) {
				t.Errorf("task %s makes a VM for the run, and finally does not delete it", task.Name)
			}
		}
	})
}

func owned(task tektonv1.PipelineTask) bool {
	return slices.ContainsFunc(task.Params, func(p tektonv1.Param) bool { return p.Name == "setOwnerReference" && p.Value.StringVal == "true" })
}

// No pipeline has a script of its own, into which a parameter could be written, nor a task of others.
func TestPipelinesHaveNoScripts(t *testing.T) {
	shipped(t, func(t *testing.T, p *tektonv1.Pipeline, _ *tektonv1.PipelineRun) {
		for _, task := range append(slices.Clone(p.Spec.Tasks), p.Spec.Finally...) {
			if task.TaskSpec != nil || task.TaskRef.Resolver != "" {
				t.Errorf("task %s is not one of ours by name", task.Name)
			}
		}
	})
}

// What is fetched from outside can be replaced: URLs and images are defaults of parameters, not in tasks.
func TestNothingOutsideIsFixed(t *testing.T) {
	outside := regexp.MustCompile(`https?://|[a-z0-9-]+\.(io|com|org)/[a-z]`)
	shipped(t, func(t *testing.T, p *tektonv1.Pipeline, _ *tektonv1.PipelineRun) {
		for _, task := range append(slices.Clone(p.Spec.Tasks), p.Spec.Finally...) {
			for _, param := range task.Params {
				for line := range strings.Lines(param.Value.StringVal) {
					if own := strings.Contains(line, "apiVersion:") || strings.Contains(line, ".kubevirt.io/") || strings.Contains(line, "slipway-vm.github.io/") ||
						strings.Contains(line, "kubernetes.io/"); !own && outside.MatchString(line) {
						t.Errorf("task %s, parameter %s: %s", task.Name, param.Name, line)
					}
				}
			}
		}
	})
}

// The gate of the license passes on "true" only, and everything that costs something waits for it.
func TestTheLicenseComesFirst(t *testing.T) {
	p := &tektonv1.Pipeline{}
	read(t, "windows-efi-installer/pipeline.yaml", p)
	gate := p.Spec.Tasks[0]
	if gate.TaskRef.Name != "check-value" || !slices.ContainsFunc(gate.Params, func(param tektonv1.Param) bool {
		return param.Name == "allowed" && slices.Equal(param.Value.ArrayVal, []string{"true"})
	}) {
		t.Fatalf("the first task is no gate: %+v", gate)
	}
	before := map[string]bool{gate.Name: true, "check-answers": true}
	for _, task := range p.Spec.Tasks {
		if !before[task.Name] && !slices.ContainsFunc(task.Deps(), func(dep string) bool { return before[dep] && dep != "check-answers" }) {
			t.Errorf("task %s does not wait for %s", task.Name, gate.Name)
		}
		before[task.Name] = true
	}
	for _, spec := range p.Spec.Params {
		if spec.Name == "acceptEula" && spec.Default != nil {
			t.Error("acceptEula has a default, so nobody would be asked")
		}
	}
}

// Answer files are whole XML, under the names that the pipelines ask for by default.
func TestAnswerFilesAreWhole(t *testing.T) {
	for pipeline, want := range map[string]struct{ param, file string }{
		"windows-efi-installer": {"autounattendConfigMapName", "autounattend.xml"},
		"windows-customize":     {"customizeConfigMapName", "unattend.xml"},
	} {
		t.Run(pipeline, func(t *testing.T) {
			var answers corev1.ConfigMap
			read(t, filepath.Join(pipeline, "answers.yaml"), &answers)
			var p tektonv1.Pipeline
			read(t, filepath.Join(pipeline, "pipeline.yaml"), &p)
			if !slices.ContainsFunc(p.Spec.Params, func(s tektonv1.ParamSpec) bool {
				return s.Name == want.param && s.Default != nil && s.Default.StringVal == answers.Name
			}) {
				t.Errorf("parameter %s does not name the ConfigMap %s by default", want.param, answers.Name)
			}
			decoder := xml.NewDecoder(strings.NewReader(answers.Data[want.file]))
			for elements := 0; ; elements++ {
				if _, err := decoder.Token(); err != nil {
					if !errors.Is(err, io.EOF) || elements < 10 {
						t.Errorf("%s: %v after %d elements", want.file, err, elements)
					}
					return
				}
			}
		})
	}
}
