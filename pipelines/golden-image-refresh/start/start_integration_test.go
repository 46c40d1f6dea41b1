//go:build integration

package start_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"knative.dev/pkg/apis"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/pipelines/golden-image-refresh/start"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// bound is how long anything may take on a busy machine.
const bound = 5 * time.Minute

// world is a namespace of a real API server, in which the test plays Tekton.
type world struct {
	client.WithWatch
	t         *testing.T
	config    *rest.Config
	namespace string
}

// newWorld has the refresh's ServiceAccount with its Role, as shipped.
func newWorld(t *testing.T, config *rest.Config) *world {
	t.Helper()
	w := &world{t: t, config: config}
	w.WithWatch = w.as("")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "refresh-"}}
	w.must(w.Create(t.Context(), ns))
	w.namespace = ns.Name
	data, err := os.ReadFile("../refresh.yaml")
	w.must(err)
	role := &rbacv1.Role{}
	w.must(yaml.UnmarshalStrict([]byte(strings.Split(string(data), "\n---\n")[1]), role))
	role.Namespace = ns.Name
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns.Name, Name: role.Name}},
	}
	w.must(errors.Join(w.Create(t.Context(), role), w.Create(t.Context(), binding)))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// as is a client of the user, or with all rights.
func (w *world) as(user string) client.WithWatch {
	w.t.Helper()
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName = user
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	w.must(err)
	return c
}

// order is that of the n-th night.
func (w *world) order(n, keep int) start.Order {
	o := order(w.t, whole+"  params:\n  - name: imageName\n    value: debian\n")
	o.Namespace, o.Job, o.JobUID, o.Keep = w.namespace, fmt.Sprintf("nightly-%d", n), types.UID(fmt.Sprintf("night%03d-uid", n)), keep
	return o
}

// does what the Job's pod does, as its ServiceAccount, and returns the log.
func (w *world) does(o start.Order) (string, error) {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.t.Context(), bound)
	defer stop()
	var log bytes.Buffer
	c := w.as("system:serviceaccount:" + w.namespace + ":golden-image-refresh")
	var err error
	for { // the API server learns of a new Role by and by
		log.Reset()
		err = o.Do(ctx, c, slog.New(slog.NewTextHandler(&log, nil)))
		if !apierrors.IsForbidden(err) || ctx.Err() != nil {
			return log.String(), err
		}
	}
}

// plays Tekton: each new run ends so, with these results.
func (w *world) plays(status corev1.ConditionStatus, results map[string]string) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	watcher, err := w.Watch(ctx, &tektonv1.PipelineRunList{}, client.InNamespace(w.namespace))
	w.must(err)
	ended := make(chan struct{})
	w.t.Cleanup(func() { stop(); watcher.Stop(); <-ended })
	go func() {
		defer close(ended)
		for event := range watcher.ResultChan() {
			run, ok := event.Object.(*tektonv1.PipelineRun)
			if !ok || run.Status.GetCondition(apis.ConditionSucceeded) != nil {
				continue
			}
			run.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: status, Reason: "Ended", Message: "played"})
			for name, value := range results {
				run.Status.Results = append(run.Status.Results, tektonv1.PipelineRunResult{Name: name, Value: *tektonv1.NewStructuredValues(value)})
			}
			if err := w.Update(ctx, run); err != nil && ctx.Err() == nil {
				w.t.Errorf("playing Tekton: %v", err)
			}
			return
		}
	}()
}

// volume makes a volume of the image.
func (w *world) volume(name string, labels map[string]string) {
	w.t.Helper()
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: labels},
		Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, Storage: &cdiv1.StorageSpec{}},
	}
	w.must(w.Create(w.t.Context(), dv))
}

// newer makes a volume that is newer than the other; creation times are whole seconds.
func (w *world) newer(name, than string, labels map[string]string) {
	w.t.Helper()
	created := func(name string) time.Time {
		dv := &cdiv1.DataVolume{}
		w.must(w.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, dv))
		return dv.CreationTimestamp.Time
	}
	for w.volume(name, labels); !created(name).After(created(than)); w.volume(name, labels) {
		w.must(w.Delete(w.t.Context(), &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}))
	}
}

func (w *world) volumes() string {
	w.t.Helper()
	var list cdiv1.DataVolumeList
	w.must(w.List(w.t.Context(), &list, client.InNamespace(w.namespace)))
	var all []string
	for _, dv := range list.Items {
		all = append(all, dv.Name)
	}
	return strings.Join(all, " ")
}

func pipelineRuns() *apiextensionsv1.CustomResourceDefinition {
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "pipelineruns.tekton.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "tekton.dev", Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "pipelineruns", Singular: "pipelinerun", Kind: "PipelineRun", ListKind: "PipelineRunList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}},
		},
	}
}

func TestTheJobsPod(t *testing.T) {
	config := apiserver.Start(t, apiserver.Only(t, "../../../controllers/hyperconverged/components/crds", "cdi.kubevirt.io", "kubevirt.io_virtualmachines")...)
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{pipelineRuns()}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *world){
		"makes a run and waits for its end": once,
		"fails with its run":                failing,
		"does not take another's run":       others,
		"ends when its run is deleted":      deletedRun,
		"ends with its own time":            timedOut,
		"deletes older nights' volumes":     retention,
		"deletes nothing when told so":      keepsAll,
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, config)) })
	}
}

func once(t *testing.T, w *world) {
	w.plays(corev1.ConditionTrue, nil)
	for n, want := range []string{"Started", "An earlier pod of the Job started the run"} {
		log, err := w.does(w.order(1, 0))
		if err != nil || !strings.Contains(log, want) {
			t.Errorf("pod %d: %v\n%s", n+1, err, log)
		}
	}
	var runs tektonv1.PipelineRunList
	w.must(w.List(t.Context(), &runs, client.InNamespace(w.namespace)))
	if len(runs.Items) != 1 || runs.Items[0].Name != "nightly-night001" || len(runs.Items[0].OwnerReferences) != 1 {
		t.Errorf("%d runs: %+v", len(runs.Items), runs.Items)
	}
}

func failing(t *testing.T, w *world) {
	w.plays(corev1.ConditionFalse, map[string]string{"volume": "debian-1"})
	w.volume("debian-0", map[string]string{start.LabelImage: "debian", start.LabelRefresh: "nightly"})
	w.volume("debian-1", map[string]string{start.LabelImage: "debian", start.LabelRefresh: "nightly"})
	if _, err := w.does(w.order(1, 1)); err == nil || !strings.Contains(err.Error(), "PipelineRun nightly-night001 failed: Ended: played") {
		t.Error(err)
	}
	if got := w.volumes(); got != "debian-0 debian-1" {
		t.Errorf("a night that failed deleted volumes: %s are left", got)
	}
}

func others(t *testing.T, w *world) {
	run := &tektonv1.PipelineRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "nightly-night001"}}
	w.must(w.Create(t.Context(), run))
	if _, err := w.does(w.order(1, 0)); err == nil || !strings.Contains(err.Error(), "exists and is not of Job nightly-1") {
		t.Error(err)
	}
}

func deletedRun(t *testing.T, w *world) {
	watcher, err := w.Watch(t.Context(), &tektonv1.PipelineRunList{}, client.InNamespace(w.namespace))
	w.must(err)
	t.Cleanup(watcher.Stop)
	go func() {
		if run, ok := (<-watcher.ResultChan()).Object.(*tektonv1.PipelineRun); ok {
			if err := w.Delete(context.Background(), run); err != nil {
				t.Errorf("deleting the run: %v", err)
			}
		}
	}()
	if _, err := w.does(w.order(1, 0)); err == nil || !strings.Contains(err.Error(), "it was deleted before its end") {
		t.Error(err)
	}
}

func timedOut(t *testing.T, w *world) {
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	if err := w.order(1, 0).Do(ctx, w, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a run that never ends ended")
	}
}

func retention(t *testing.T, w *world) {
	mine := map[string]string{start.LabelImage: "debian", start.LabelRefresh: "nightly"}
	w.volume("by-hand", map[string]string{start.LabelImage: "debian"})
	w.volume("other-refresh", map[string]string{start.LabelImage: "debian", start.LabelRefresh: "weekly"})
	w.volume("other-image", map[string]string{start.LabelImage: "fedora", start.LabelRefresh: "nightly"})
	for _, name := range []string{"a-free", "b-named", "c-named-elsewhere", "d-cloned"} {
		w.volume(name, mine)
	}
	w.newer("z-new", "d-cloned", map[string]string{start.LabelImage: "debian"})
	source := func(namespace, name, volume string) {
		w.must(w.Create(t.Context(), &cdiv1.DataSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: w.namespace, Name: volume}}},
		}))
	}
	source(w.namespace, "old", "b-named")
	source(w.namespace, "debian", "z-new")
	source("default", w.namespace, "c-named-elsewhere")
	w.must(w.Create(t.Context(), &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "vm-disk"},
		Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "d-cloned", Namespace: w.namespace}}, Storage: &cdiv1.StorageSpec{}},
	}))
	all := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datasources"}, Verbs: []string{"list"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.namespace},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "golden-image-refresh"}},
	}
	w.must(errors.Join(w.Create(t.Context(), all), w.Create(t.Context(), binding)))
	account := w.as("system:serviceaccount:" + w.namespace + ":golden-image-refresh")
	for deadline := time.Now().Add(bound); ; time.Sleep(50 * time.Millisecond) { // the API server learns of it by and by
		err := account.List(t.Context(), &cdiv1.DataSourceList{})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for the right to see other namespaces: %v", err)
		}
	}

	w.plays(corev1.ConditionTrue, map[string]string{"volume": "z-new", "upToDate": "false"})
	log, err := w.does(w.order(1, 1))
	w.must(err)
	if got, want := w.volumes(), "b-named by-hand c-named-elsewhere d-cloned other-image other-refresh vm-disk z-new"; got != want {
		t.Errorf("left are %s; want %s\n%s", got, want, log)
	}
	for _, want := range []string{"DataSource " + w.namespace + "/old names it", "DataSource default/" + w.namespace + " names it", "DataVolume vm-disk is being cloned from it", "Deleted the volume of an earlier night"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}

	t.Log("without the right to see other namespaces, that is said; a volume that was published before is not marked")
	w.must(w.Delete(t.Context(), binding))
	w.plays(corev1.ConditionTrue, map[string]string{"volume": "by-hand", "upToDate": "true"})
	for deadline := time.Now().Add(bound); ; { // the API server learns of it by and by
		if log, err = w.does(w.order(2, 1)); err != nil || strings.Contains(log, "README.md tells which right") || time.Now().After(deadline) {
			break
		}
	}
	w.must(err)
	if !strings.Contains(log, "README.md tells which right") || !strings.Contains(w.volumes(), "by-hand") {
		t.Errorf("left are %s\n%s", w.volumes(), log)
	}
}

func keepsAll(t *testing.T, w *world) {
	mine := map[string]string{start.LabelImage: "debian", start.LabelRefresh: "nightly"}
	w.volume("a", mine)
	w.volume("b", mine)
	w.plays(corev1.ConditionTrue, map[string]string{"volume": "b"})
	if _, err := w.does(w.order(1, 0)); err != nil || w.volumes() != "a b" {
		t.Errorf("%v, left are %s", err, w.volumes())
	}
}
