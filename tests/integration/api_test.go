//go:build integration

// Package integration tests what only a real API server can say: that it takes the
// CustomResourceDefinitions, that they keep what users send, and that server-side
// apply gives each field its owner. It needs etcd and an API server, and no node.
package integration

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	templatev1 "github.com/openshift/api/template/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// api is a client of the API server under test, with every definition installed.
var api client.WithWatch

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	assets, err := buildAssets()
	if err != nil {
		os.Stderr.WriteString("building the API server: " + err.Error() + "\n")
		return 1
	}
	server := &envtest.Environment{
		Scheme:                scheme.New(), // kinds of several versions get the conversion webhook below
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{"../../controllers/hyperconverged/components/crds"},
		ErrorIfCRDPathMissing: true,
	}
	config, err := apiserver.Begin(server)
	if err == nil {
		api, err = client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err == nil {
		err = convert(ctx, server.WebhookInstallOptions)
	}
	if err != nil {
		os.Stderr.WriteString("starting the API server: " + err.Error() + "\n")
		_ = server.Stop()
		return 1
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		os.Stderr.WriteString("stopping the API server: " + err.Error() + "\n")
		return 1
	}
	return code
}

// convert serves conversions, as virt-operator does, from when it returns.
func convert(ctx context.Context, options envtest.WebhookInstallOptions) error {
	server := webhook.NewServer(webhook.Options{Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir})
	server.Register("/convert", conversion.NewWebhookHandler(scheme.New(), conversion.NewRegistry()))
	go func() {
		if err := server.Start(ctx); err != nil {
			os.Stderr.WriteString("serving conversions: " + err.Error() + "\n")
		}
	}()
	serves := server.StartedChecker()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := serves(nil)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// buildAssets builds etcd and the API server from their modules, or finds them in the cache.
func buildAssets() (string, error) {
	cmd := exec.Command("go", "run", "-C", "../../hack/cluster", ".", "build")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	lines := strings.Fields(string(out))
	if len(lines) == 0 {
		return "", errors.New("no folder was printed")
	}
	return filepath.Clean(lines[len(lines)-1]), nil
}

// namespace makes a namespace for a test.
func namespace(t *testing.T) string {
	t.Helper()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := api.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	return made.Name
}

// The API server prunes what a schema does not name; what users put into templates must stay.
func TestNothingOfATemplateIsLost(t *testing.T) {
	data, err := os.ReadFile("../../pipelines/vm-from-template/template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sent := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &sent.Object); err != nil {
		t.Fatal(err)
	}
	sent.SetNamespace(namespace(t))
	want := sent.DeepCopy().Object["objects"]
	if err := api.Create(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(templatev1.GroupVersion.WithKind("Template"))
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(sent), got); err != nil {
		t.Fatal(err)
	}
	wantYAML, _ := yaml.Marshal(want)
	gotYAML, _ := yaml.Marshal(got.Object["objects"])
	if string(wantYAML) != string(gotYAML) {
		t.Fatalf("objects changed:\n%s\nwant\n%s", gotYAML, wantYAML)
	}
}

func TestEmbeddedMetadataOfAVMStays(t *testing.T) {
	vm := fixture.VM(namespace(t), "labelled", fixture.ContainerDisk("x/y:z"))
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web"}
	vm.Spec.Template.ObjectMeta.Annotations = map[string]string{"note": "kept"}
	if err := api.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	got := &virtv1.VirtualMachine{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(vm), got); err != nil {
		t.Fatal(err)
	}
	if got.Spec.Template.ObjectMeta.Labels["app"] != "web" || got.Spec.Template.ObjectMeta.Annotations["note"] != "kept" {
		t.Fatalf("the template's metadata is %+v", got.Spec.Template.ObjectMeta)
	}
}

func TestUnknownFieldIsRefusedByStrictValidation(t *testing.T) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(fixture.VM(namespace(t), "typo", fixture.ContainerDisk("x/y:z")))
	if err != nil {
		t.Fatal(err)
	}
	vm := &unstructured.Unstructured{Object: content}
	if err := unstructured.SetNestedField(vm.Object, true, "spec", "template", "spec", "domain", "cpu", "coers"); err != nil {
		t.Fatal(err)
	}
	err = api.Create(t.Context(), vm, client.FieldValidation(metav1.FieldValidationStrict))
	if err == nil || !strings.Contains(err.Error(), `unknown field "spec.template.spec.domain.cpu.coers"`) {
		t.Fatalf("got %v", err)
	}
}

func TestBothVersionsOfAVMAreServed(t *testing.T) {
	for _, version := range []string{"v1", "v1alpha3"} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("kubevirt.io/" + version)
		list.SetKind("VirtualMachineList")
		if err := api.List(t.Context(), list); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// Two managers own a condition each, and each removes only its own.
func TestConditionsHaveOneOwnerEach(t *testing.T) {
	ctx := t.Context()
	vmi := &virtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace(t), Name: "owned"},
		Spec:       fixture.VM("", "").Spec.Template.Spec,
	}
	if err := api.Create(ctx, vmi); err != nil {
		t.Fatal(err)
	}
	condition := func(kind virtv1.VirtualMachineInstanceConditionType) map[string]any {
		return map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": string(kind), "status": "True"}}}}
	}
	for manager, kind := range map[string]virtv1.VirtualMachineInstanceConditionType{
		"a": virtv1.VirtualMachineInstanceReady, "b": virtv1.VirtualMachineInstanceSynchronized,
	} {
		if err := apply.Fields(ctx, api, vmi, manager, condition(kind)); err != nil {
			t.Fatal(err)
		}
	}
	if err := apply.Fields(ctx, api, vmi, "a", map[string]any{"status": map[string]any{"phase": "Running"}}); err != nil {
		t.Fatal(err)
	}
	got := &virtv1.VirtualMachineInstance{}
	if err := api.Get(ctx, client.ObjectKeyFromObject(vmi), got); err != nil {
		t.Fatal(err)
	}
	if len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Type != virtv1.VirtualMachineInstanceSynchronized || got.Status.Phase != virtv1.Running {
		t.Fatalf("status is %+v", got.Status)
	}
}

func TestApplyNeverMakesADeletedObjectAgain(t *testing.T) {
	ctx := t.Context()
	vmi := &virtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace(t), Name: "gone"},
		Spec:       fixture.VM("", "").Spec.Template.Spec,
	}
	if err := api.Create(ctx, vmi); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(ctx, vmi); err != nil {
		t.Fatal(err)
	}
	err := apply.Fields(ctx, api, vmi, "a", map[string]any{"status": map[string]any{"phase": "Running"}})
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		t.Fatalf("got %v, want a conflict", err)
	}
	if err := api.Get(ctx, client.ObjectKeyFromObject(vmi), &virtv1.VirtualMachineInstance{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the object is there again: %v", err)
	}
}

func TestApplyKeepsEmptyObjectsThatMeanSomething(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace(t), Name: "empty"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "x/y:z"}},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
	if err := apply.Object(t.Context(), api, pod, "a"); err != nil {
		t.Fatal(err)
	}
	if pod.UID == "" {
		t.Error("the uid was not taken over")
	}
	got := &corev1.Pod{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(pod), got); err != nil {
		t.Fatal(err)
	}
	if got.Spec.Volumes[0].EmptyDir == nil {
		t.Fatalf("the volume is %+v", got.Spec.Volumes[0])
	}
}

func TestAwaitSeesAbsenceChangeAndDeletion(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace(t), Name: "awaited"}}
	var seen []string
	err := await.Object(ctx, api, &corev1.ConfigMapList{}, client.ObjectKeyFromObject(config), func(found *corev1.ConfigMap, exists bool) (bool, error) {
		switch {
		case !exists && len(seen) == 0:
			seen = append(seen, "absent")
			return false, api.Create(ctx, config.DeepCopy())
		case !exists:
			seen = append(seen, "deleted")
			return true, nil
		case len(found.Data) == 0:
			seen = append(seen, "made")
			found = found.DeepCopy()
			found.Data = map[string]string{"a": "b"}
			return false, api.Update(ctx, found)
		}
		seen = append(seen, "changed")
		return false, api.Delete(ctx, config.DeepCopy())
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(seen, " "); got != "absent made changed deleted" {
		t.Fatalf("saw %s", got)
	}
}
