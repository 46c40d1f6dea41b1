package hyperconverged

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// replicasOf are those of the planned Deployments.
func replicasOf(t *testing.T, objects []*unstructured.Unstructured) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		switch replicas, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "replicas"); n := replicas.(type) {
		case int64:
			all[object.GetName()] = n
		case float64:
			all[object.GetName()] = int64(n)
		default:
			t.Fatalf("%s has %v replicas", object.GetName(), replicas)
		}
	}
	return all
}

func TestReplicasAreTheMostThatAreAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		kubevirt                *uint8
		deployment, api, upload *int32
		want                    map[string]int64 // but those with one
	}{
		"nothing":      {},
		"KubeVirt's":   {kubevirt: new(uint8(2)), want: map[string]int64{"virt-api": 2, "virt-controller": 2, "virt-exportproxy": 2}},
		"CDI's":        {deployment: new(int32(2)), api: new(int32(3)), upload: new(int32(4)), want: map[string]int64{"virt-controller": 2, "virt-api": 3, "cdi-uploadproxy": 4}},
		"both":         {kubevirt: new(uint8(3)), deployment: new(int32(2)), api: new(int32(4)), want: map[string]int64{"virt-controller": 3, "virt-api": 4, "virt-exportproxy": 3}},
		"one of each":  {kubevirt: new(uint8(1)), deployment: new(int32(1)), api: new(int32(1)), upload: new(int32(1))},
		"none of each": {kubevirt: new(uint8(0)), deployment: new(int32(0)), api: new(int32(-1)), upload: new(int32(0))},
	} {
		t.Run(name, func(t *testing.T) {
			kubevirt, cdi := &virtv1.KubeVirt{}, &cdiv1.CDI{}
			kubevirt.Spec.Infra = &virtv1.ComponentConfig{Replicas: c.kubevirt}
			cdi.Spec.Infra.DeploymentReplicas, cdi.Spec.Infra.APIServerReplicas, cdi.Spec.Infra.UploadProxyReplicas = c.deployment, c.api, c.upload
			objects, err := plan(&hcov1.HyperConverged{}, infraOf(kubevirt, cdi), testOptions().Values())
			if err != nil {
				t.Fatal(err)
			}
			for component, got := range replicasOf(t, objects) {
				if want := max(c.want[component], 1); got != want {
					t.Errorf("%s has %d replicas, want %d", component, got, want)
				}
			}
		})
	}
}

func TestPlanWithReplicasAndAPriority(t *testing.T) {
	kubevirt, cdi := &virtv1.KubeVirt{}, &cdiv1.CDI{}
	kubevirt.Spec.Infra = &virtv1.ComponentConfig{Replicas: new(uint8(2))}
	cdi.Spec.PriorityClass = new(cdiv1.CDIPriorityClass("storage"))
	objects, err := plan(&hcov1.HyperConverged{}, infraOf(kubevirt, cdi), testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, filepath.Join("testdata", "plan-many-with-a-priority.yaml"), withPods(objects))
}

// A class that is missing is told of, and cdi-uploadproxy keeps that of all components: without one it could have no pod.
func TestAPriorityClassIsWaitedFor(t *testing.T) {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "storage"}, Value: 1000}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(class).Build(), Options: testOptions()}
	for named, want := range map[string]string{"": "kubevirt-cluster-critical", "storage": "storage", "missing": "kubevirt-cluster-critical"} {
		s := &scope{cdi: &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi"}}}
		if named != "" {
			s.cdi.Spec.PriorityClass = new(cdiv1.CDIPriorityClass(named))
		}
		asked := infraOf(nil, s.cdi)
		if err := r.findPriority(t.Context(), s, &asked); err != nil {
			t.Fatal(err)
		}
		objects, err := plan(&hcov1.HyperConverged{}, asked, testOptions().Values())
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range withPods(objects) {
			got, _, err := unstructured.NestedString(object.Object, "spec", "template", "spec", "priorityClassName")
			if err != nil || object.GetName() == "cdi-uploadproxy" && got != want || object.GetName() != "cdi-uploadproxy" && got != "kubevirt-cluster-critical" {
				t.Errorf("class %q is named, and %s has %q, %v", named, object.GetName(), got, err)
			}
		}
		if told := strings.Contains(s.waits(), "PriorityClass missing"); told != (named == "missing") {
			t.Errorf("class %q is named, and what is waited for is %q", named, s.waits())
		}
	}
}

func TestAllComponentsArePulledByTheSecrets(t *testing.T) {
	kubevirt := &virtv1.KubeVirt{}
	kubevirt.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}, {Name: "mirror"}}
	objects, err := plan(&hcov1.HyperConverged{}, infraOf(kubevirt, nil), testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		secrets, found, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "imagePullSecrets")
		if err != nil || found != (object.GetKind() == "Deployment" || object.GetKind() == "DaemonSet") || found && !sameJSON(secrets, kubevirt.Spec.ImagePullSecrets) {
			t.Errorf("%s %s is pulled by %v, %v", object.GetKind(), object.GetName(), secrets, err)
		}
	}
}
