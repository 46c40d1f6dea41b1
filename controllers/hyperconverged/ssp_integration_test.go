//go:build integration

package hyperconverged

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	sspv1beta3 "github.com/slipway-vm/slipway/internal/api/ssp/v1beta3"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/fixture/freeport"
)

// taskFiles is a bundle with a task, its account and role, for each name. What they say tells the release.
func taskFiles(release string, tasks ...string) fstest.MapFS {
	files := fstest.MapFS{}
	for _, name := range tasks {
		files[name+"/task.yaml"] = &fstest.MapFile{Data: fmt.Appendf(nil, `apiVersion: tekton.dev/v1
kind: Task
metadata: {name: %[1]s}
spec: {description: %[2]s, image: 'ghcr.io/slipway-vm/slipway:devel'}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s-task}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s-task}
rules:
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [%[2]s]
  verbs: [get]
`, name, release)}
	}
	return files
}

func pipelineFiles(name string) fstest.MapFS {
	return fstest.MapFS{name + "/pipeline.yaml": &fstest.MapFile{Data: fmt.Appendf(nil,
		"apiVersion: tekton.dev/v1\nkind: Pipeline\nmetadata: {name: %s}\nspec: {}\n", name)}}
}

// TestSSP walks through what the SSP object says, and through an upgrade of what it deploys.
func TestSSP(t *testing.T) {
	c, config, options := startAPIServer(t)
	options.Bundles = []Bundle{{Name: "tasks", Files: taskFiles("first", "one", "two")}, {Name: "pipelines", Files: pipelineFiles("chain")}}
	stop := startRun(t, c, config, options)
	installTask(t, c)
	for _, name := range []string{"builds", "more"} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	hco := theObject(options)
	hco.Spec.WorkloadSources.TektonNamespaces = []string{"builds", "more"}
	if err := c.Create(t.Context(), hco); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []struct {
		name string
		test func(*testing.T, client.WithWatch, Options)
	}{
		{"it says what HyperConverged says, and that all is there", sspIsTrue},
		{"what nothing acts on is refused with its path", sspRefuses},
		{"an edit is overwritten", sspIsOverwritten},
		{"a namespace that is asked for no longer loses all, the other one nothing", sspLosesNamespace},
		{"while it is paused nothing changes", sspPauses},
		{"HyperConverged's patch reaches it, and what it asks for", sspIsPatched},
	} {
		if !t.Run(stage.name, func(t *testing.T) { stage.test(t, c, options) }) {
			t.Fatal("the stages build on each other")
		}
	}
	stop()
	t.Run("an upgrade changes in place, adds, and prunes", func(t *testing.T) { sspUpgrades(t, c, config, options) })
}

func sspKey(options Options) client.ObjectKey {
	return client.ObjectKey{Namespace: options.Namespace, Name: sspv1beta3.Name}
}

func waitSSP(t *testing.T, c client.WithWatch, options Options, what string, check func(*sspv1beta3.SSP) bool) *sspv1beta3.SSP {
	t.Helper()
	var last *sspv1beta3.SSP
	wait(t, c, &sspv1beta3.SSPList{}, sspKey(options), what, func(ssp *sspv1beta3.SSP) bool {
		last = ssp
		return check(ssp)
	})
	return last
}

func deployed(ssp *sspv1beta3.SSP) bool {
	return ssp.Status.Phase == "Deployed" && ssp.Status.ObservedGeneration == ssp.Generation
}

// present says whether the object of the kind is there, and returns it.
func present(t *testing.T, c client.Client, apiVersion, kind, namespace, name string) (*unstructured.Unstructured, bool) {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return object, err == nil
}

// eventually waits until what is said is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); <-time.After(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func hasTask(t *testing.T, c client.Client, namespace, name string) bool {
	t.Helper()
	_, task := present(t, c, "tekton.dev/v1", "Task", namespace, name)
	_, account := present(t, c, "v1", "ServiceAccount", namespace, name+"-task")
	_, role := present(t, c, "rbac.authorization.k8s.io/v1", "Role", namespace, name+"-task")
	if task != account || task != role {
		return !task // halfway: neither there nor gone
	}
	return task
}

func sspIsTrue(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	ssp := waitSSP(t, c, options, "SSP is deployed", deployed)
	if gate := ssp.Spec.FeatureGates; gate == nil || !gate.DeployTektonTaskResources || len(ssp.Spec.TektonTasks.Namespaces) != 2 {
		t.Errorf("spec is %+v", ssp.Spec)
	}
	if ssp.Status.ObservedVersion != options.Version || len(ssp.Status.Conditions) != 3 {
		t.Errorf("status is %+v", ssp.Status)
	}
	older, found := present(t, c, "ssp.kubevirt.io/v1beta2", "SSP", options.Namespace, sspv1beta3.Name)
	if phase, _, err := unstructured.NestedString(older.Object, "status", "phase"); !found || err != nil || phase != "Deployed" {
		t.Errorf("in v1beta2: found %v, phase %q (%v)", found, phase, err)
	}
	for _, namespace := range []string{"builds", "more"} {
		_, pipeline := present(t, c, "tekton.dev/v1", "Pipeline", namespace, "chain")
		if !hasTask(t, c, namespace, "one") || !hasTask(t, c, namespace, "two") || !pipeline {
			t.Errorf("something is missing in namespace %s", namespace)
		}
	}
}

func sspRefuses(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	for path, change := range map[string]func(map[string]any){
		"spec.commonTemplates":                   func(spec map[string]any) { spec["commonTemplates"] = map[string]any{"namespace": "x"} },
		"spec.templateValidator":                 func(spec map[string]any) { spec["templateValidator"] = map[string]any{"replicas": int64(2)} },
		"spec.tlsSecurityProfile":                func(spec map[string]any) { spec["tlsSecurityProfile"] = map[string]any{} },
		"spec.commonInstancetypes.url":           func(spec map[string]any) { spec["commonInstancetypes"] = map[string]any{"url": "https://x"} },
		"spec.vmConsoleProxy":                    func(spec map[string]any) { spec["vmConsoleProxy"] = map[string]any{} },
		"spec.tokenGenerationService":            func(spec map[string]any) { spec["tokenGenerationService"] = map[string]any{"enabled": true} },
		"spec.cluster":                           func(spec map[string]any) { spec["cluster"] = map[string]any{} },
		"spec.enableMultipleArchitectures":       func(spec map[string]any) { spec["enableMultipleArchitectures"] = true },
		"spec.featureGates.deployVmConsoleProxy": func(spec map[string]any) { spec["featureGates"] = map[string]any{"deployVmConsoleProxy": true} },
	} {
		for _, version := range []string{"v1beta2", "v1beta3"} {
			live, _ := present(t, c, "ssp.kubevirt.io/"+version, "SSP", options.Namespace, sspv1beta3.Name)
			change(live.Object["spec"].(map[string]any))
			if err := c.Update(t.Context(), live); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), path+":") {
				t.Errorf("%s: got %v, want a refusal that names it", path, err)
			}
		}
	}
	other := &sspv1beta3.SSP{ObjectMeta: metav1.ObjectMeta{Namespace: options.Namespace, Name: "mine"}}
	if err := c.Create(t.Context(), other); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("got %v, want a refusal that names metadata.name", err)
	}
	elsewhere := &sspv1beta3.SSP{ObjectMeta: metav1.ObjectMeta{Namespace: "builds", Name: sspv1beta3.Name}}
	wantRefusal(t, c.Create(t.Context(), elsewhere), "metadata.namespace")
}

func sspIsOverwritten(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	ssp := waitSSP(t, c, options, "SSP is there", func(*sspv1beta3.SSP) bool { return true })
	ssp.Spec.TektonTasks.Namespace = "default"
	ssp.Spec.TektonPipelines = nil
	if err := c.Update(t.Context(), ssp); err != nil {
		t.Fatal(err)
	}
	edited := ssp.Generation
	waitSSP(t, c, options, "the edit is overwritten", func(now *sspv1beta3.SSP) bool {
		return now.Generation > edited && now.Spec.TektonTasks.Namespace == "" && now.Spec.TektonPipelines != nil && deployed(now)
	})
	if hasTask(t, c, "default", "one") {
		t.Error("the edit was acted upon")
	}
}

func ask(t *testing.T, c client.WithWatch, options Options, change func(*hcov1.HyperConverged)) {
	t.Helper()
	eventually(t, "HyperConverged is changed", func() bool {
		hco := &hcov1.HyperConverged{}
		get(t, c, client.ObjectKeyFromObject(theObject(options)), hco)
		change(hco)
		err := c.Update(t.Context(), hco)
		if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		return err == nil
	})
}

func sspLosesNamespace(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	users := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "more", Name: "users"}}
	if err := c.Create(t.Context(), users); err != nil {
		t.Fatal(err)
	}
	ask(t, c, options, func(hco *hcov1.HyperConverged) { hco.Spec.WorkloadSources.TektonNamespaces = []string{"builds"} })
	eventually(t, "namespace more has nothing of ours", func() bool {
		_, pipeline := present(t, c, "tekton.dev/v1", "Pipeline", "more", "chain")
		return !hasTask(t, c, "more", "one") && !hasTask(t, c, "more", "two") && !pipeline
	})
	if !hasTask(t, c, "builds", "one") || !hasTask(t, c, "builds", "two") {
		t.Error("namespace builds lost something")
	}
	get(t, c, client.ObjectKeyFromObject(users), users)
}

func sspPauses(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	pause := func(value string) {
		ssp := &sspv1beta3.SSP{ObjectMeta: metav1.ObjectMeta{Namespace: options.Namespace, Name: sspv1beta3.Name}}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, sspv1beta3.AnnotationPaused, value)
		if err := c.Patch(t.Context(), ssp, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	pause("true")
	waitSSP(t, c, options, "it is paused", func(ssp *sspv1beta3.SSP) bool { return ssp.Status.Paused })
	task, _ := present(t, c, "tekton.dev/v1", "Task", "builds", "one")
	task.Object["spec"] = map[string]any{"description": "mine"}
	if err := c.Update(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	ask(t, c, options, func(hco *hcov1.HyperConverged) { hco.Spec.WorkloadSources.TektonNamespaces = nil })
	waitSSP(t, c, options, "the pass over the new spec is done", func(ssp *sspv1beta3.SSP) bool {
		return ssp.Spec.TektonTasks == nil && ssp.Status.ObservedGeneration == ssp.Generation
	})
	if task, found := present(t, c, "tekton.dev/v1", "Task", "builds", "one"); !found || !strings.Contains(fmt.Sprint(task.Object["spec"]), "mine") {
		t.Errorf("a task was touched while SSP was paused: %v", task.Object["spec"])
	}
	ask(t, c, options, func(hco *hcov1.HyperConverged) { hco.Spec.WorkloadSources.TektonNamespaces = []string{"builds"} })
	pause("false")
	eventually(t, "the task is as it is shipped", func() bool {
		task, found := present(t, c, "tekton.dev/v1", "Task", "builds", "one")
		return found && strings.Contains(fmt.Sprint(task.Object["spec"]), "first")
	})
	waitSSP(t, c, options, "it is not paused", func(ssp *sspv1beta3.SSP) bool { return !ssp.Status.Paused && deployed(ssp) })
}

func sspIsPatched(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	ask(t, c, options, func(hco *hcov1.HyperConverged) {
		hco.Annotations = map[string]string{hcov1.AnnotationSSPPatch: `[{"op":"add","path":"/spec/tektonTasks/namespace","value":"more"}]`}
	})
	eventually(t, "namespace more has the tasks", func() bool { return hasTask(t, c, "more", "one") && hasTask(t, c, "more", "two") })
	if _, pipeline := present(t, c, "tekton.dev/v1", "Pipeline", "more", "chain"); pipeline {
		t.Error("namespace more got pipelines, too")
	}
	ask(t, c, options, func(hco *hcov1.HyperConverged) { hco.Annotations = nil })
	eventually(t, "namespace more has nothing of ours", func() bool { return !hasTask(t, c, "more", "one") && !hasTask(t, c, "more", "two") })
}

// sspUpgrades starts the operator of a later version, which ships one task less, one more and one that changed.
func sspUpgrades(t *testing.T, c client.WithWatch, config *rest.Config, options Options) {
	t.Helper()
	before, _ := present(t, c, "tekton.dev/v1", "Task", "builds", "one")
	options.Version = "v2"
	options.Bundles = []Bundle{{Name: "tasks", Files: taskFiles("second", "one", "three")}, {Name: "pipelines", Files: pipelineFiles("chain")}}
	stop := startRun(t, c, config, options)
	defer stop()
	ssp := waitSSP(t, c, options, "the new version is deployed", func(ssp *sspv1beta3.SSP) bool {
		return deployed(ssp) && ssp.Status.ObservedVersion == "v2"
	})
	after, _ := present(t, c, "tekton.dev/v1", "Task", "builds", "one")
	if after.GetUID() != before.GetUID() {
		t.Error("the task was made anew")
	}
	if !strings.Contains(fmt.Sprint(after.Object["spec"]), "second") || after.GetLabels()[names.LabelVersion] != "v2" {
		t.Errorf("the task is %v with labels %v", after.Object["spec"], after.GetLabels())
	}
	role := &rbacv1.Role{}
	get(t, c, client.ObjectKey{Namespace: "builds", Name: "one-task"}, role)
	if len(role.Rules) != 1 || role.Rules[0].ResourceNames[0] != "second" {
		t.Errorf("the role's rules are %v", role.Rules)
	}
	if !hasTask(t, c, "builds", "three") {
		t.Error("the new task is missing")
	}
	eventually(t, "the task that is no longer shipped is gone", func() bool { return !hasTask(t, c, "builds", "two") })
	if ssp.Status.OperatorVersion != "v2" || ssp.Status.TargetVersion != "v2" {
		t.Errorf("status is %+v", ssp.Status)
	}
}

// startRun runs the operator and returns what stops it, and waits until it has.
func startRun(t *testing.T, c client.WithWatch, config *rest.Config, options Options) func() {
	t.Helper()
	options.WebhookPort = freeport.TCP(t)
	options.WebhookURL = fmt.Sprintf("https://localhost:%d", options.WebhookPort)
	options.lead = lead{duration: 10 * time.Minute, deadline: patience, retry: 2 * time.Second, grace: patience} // nobody else leads meanwhile
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, config, options) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the operator ended: %v", err)
		}
	}
	t.Cleanup(stop)
	announced(t, c, options.WebhookURL)
	return stop
}
