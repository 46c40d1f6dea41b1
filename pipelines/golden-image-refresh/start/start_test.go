package start_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/pipelines/golden-image-refresh/start"
)

const whole = "apiVersion: tekton.dev/v1\nkind: PipelineRun\nmetadata:\n  generateName: nightly-\nspec:\n  pipelineRef:\n    name: golden-image\n"

func order(t *testing.T, text string) start.Order {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return start.Order{File: path, Namespace: "builds", Job: "nightly-1", JobUID: "0123456789ab-cdef"}
}

func TestARunIsItsJobs(t *testing.T) {
	o := order(t, whole)
	first, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	again, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	if first.Name != "nightly-01234567" || again.Name != first.Name || first.GenerateName != "" || first.Namespace != "builds" {
		t.Errorf("a Job's runs: %s/%s and %s", first.Namespace, first.Name, again.Name)
	}
	if len(first.OwnerReferences) != 1 || first.OwnerReferences[0].UID != o.JobUID || first.OwnerReferences[0].Kind != "Job" {
		t.Errorf("owners: %+v", first.OwnerReferences)
	}
}

func TestWhatIsNoRunIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, message string }{
		"unknown field":     {whole + "  timeout: 1h\n", "timeout"},
		"a task run":        {"apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata:\n  generateName: x-\n", "write a PipelineRun"},
		"a fixed name":      {strings.ReplaceAll(whole, "generateName", "name"), "give generateName"},
		"another namespace": {strings.ReplaceAll(whole, "metadata:\n", "metadata:\n  namespace: shop\n"), "metadata.namespace is shop"},
		"no YAML":           {"\t", "reading the PipelineRun"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := order(t, c.text).Read(); err == nil || !strings.Contains(err.Error(), c.message) {
				t.Errorf("error %v, want %q", err, c.message)
			}
		})
	}
	keeps := order(t, whole)
	for keep, want := range map[int]string{-1: "--keep: -1 is no number of volumes", 1: "imageName is missing"} {
		keeps.Keep = keep
		if _, err := keeps.Read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--keep=%d: error %v, want %q", keep, err, want)
		}
	}
	if _, err := (start.Order{File: "x", Namespace: "builds", Job: "x"}).Read(); err == nil || !strings.Contains(err.Error(), "JOB_UID") {
		t.Errorf("without a Job: %v", err)
	}
	if _, err := (start.Order{File: "/does/not/exist", Namespace: "builds", Job: "x", JobUID: "y"}).Read(); err == nil {
		t.Error("a file that does not exist was read")
	}
}

// The objects decode strictly, the run in them is one to start, and the pod mounts and names what there is.
func TestTheRefreshIsWhole(t *testing.T) {
	data, err := os.ReadFile("../refresh.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(data), "\n---\n")
	if len(documents) != 5 {
		t.Fatalf("%d documents", len(documents))
	}
	account, role, binding := &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}
	run, job := &corev1.ConfigMap{}, &batchv1.CronJob{}
	for i, object := range []any{account, role, binding, run, job} {
		if err := yaml.UnmarshalStrict([]byte(documents[i]), object); err != nil {
			t.Fatal(err)
		}
	}
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	if pod.ServiceAccountName != account.Name || binding.RoleRef.Name != role.Name || binding.Subjects[0].Name != account.Name {
		t.Error("account, role and binding do not belong together")
	}
	checkRestricted(t, &pod)
	if want := []string{"create", "get", "list", "watch"}; len(role.Rules) != 5 || !slices.Equal(role.Rules[0].Verbs, want) {
		t.Errorf("rules: %+v", role.Rules) // that each is used and none is missing, integration tests show
	}
	if pod.Volumes[0].ConfigMap.Name != run.Name || !slices.Contains(pod.Containers[0].Command, "--file="+pod.Containers[0].VolumeMounts[0].MountPath+"/run.yaml") {
		t.Error("the container does not read the ConfigMap's run")
	}
	if !slices.Contains(pod.Containers[0].Command, "--keep=3") {
		t.Error("older nights' volumes are kept forever")
	}
	o := order(t, run.Data["run.yaml"])
	o.Keep = 3
	started, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	checkRun(t, started)
	if timeout := started.Spec.Timeouts.Pipeline.Seconds(); float64(*job.Spec.JobTemplate.Spec.ActiveDeadlineSeconds) < timeout {
		t.Errorf("the Job ends after %d s, its run after %.0f s", *job.Spec.JobTemplate.Spec.ActiveDeadlineSeconds, timeout)
	}
}

// checkRun makes sure that the run is golden-image's run to copy, with a name of its own.
func checkRun(t *testing.T, started *tektonv1.PipelineRun) {
	t.Helper()
	data, err := os.ReadFile("../../golden-image/run.yaml")
	if err != nil {
		t.Fatal(err)
	}
	toCopy := &tektonv1.PipelineRun{}
	if err := yaml.UnmarshalStrict(data, toCopy); err != nil {
		t.Fatal(err)
	}
	if started.Spec.PipelineRef.Name != "golden-image" || !slices.EqualFunc(started.Spec.TaskRunSpecs, toCopy.Spec.TaskRunSpecs, func(a, b tektonv1.PipelineTaskRunSpec) bool {
		return a.PipelineTaskName == b.PipelineTaskName && a.ServiceAccountName == b.ServiceAccountName
	}) {
		t.Error("the run differs from pipelines/golden-image/run.yaml in its taskRunSpecs")
	}
	started.SetDefaults(t.Context())
	if err := started.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// checkRestricted makes sure that restricted Pod Security admits the pod.
func checkRestricted(t *testing.T, pod *corev1.PodSpec) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	if result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &metav1.ObjectMeta{}, pod)); !result.Allowed {
		t.Errorf("restricted Pod Security refuses the pod: %s", result.ForbiddenDetail())
	}
}
