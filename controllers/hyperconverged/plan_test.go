package hyperconverged

import (
	"bytes"
	"path/filepath"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
	"sigs.k8s.io/yaml"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// testOptions are those of an installation with nothing special.
func testOptions() Options {
	return Options{
		Namespace: "kubevirt-hyperconverged", KubeletRoot: "/var/lib/kubelet", Version: "v0.0.0-test",
		SlipwayImage: "registry.test/slipway:1", LauncherImage: "registry.test/slipway-launcher:1", GuestfsImage: "registry.test/slipway-guestfs:1",
	}
}

func TestPlan(t *testing.T) {
	seven := int32(7)
	cases := map[string]func(*hcov1.HyperConverged){
		"default": func(*hcov1.HyperConverged) {},
		"placed-and-loud": func(hco *hcov1.HyperConverged) {
			hco.Spec.Deployment.LogVerbosityConfig.Kubevirt.VirtHandler = &seven
			hco.Spec.Deployment.NodePlacements.Infra = &sdkapi.NodePlacement{
				Tolerations: []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}},
			}
			hco.Spec.Deployment.NodePlacements.Workload = &sdkapi.NodePlacement{NodeSelector: map[string]string{"vms": "yes"}}
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			hco := &hcov1.HyperConverged{}
			change(hco)
			objects := plannedFor(t, hco)
			if name != "default" {
				objects = withPods(objects) // the rest does not depend on the object
			}
			compareGolden(t, filepath.Join("testdata", "plan-"+name+".yaml"), objects)
		})
	}
}

// plannedFor are the components that hco asks for by way of the KubeVirt and the CDI object.
func plannedFor(t *testing.T, hco *hcov1.HyperConverged) []*unstructured.Unstructured {
	t.Helper()
	wanted, err := operands(hco, testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	asked, err := askerOf(wanted)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := plan(hco, infraOf(asked.kubevirt, asked.cdi), testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestPlanIsInTheOrderInWhichThingsAreNeeded(t *testing.T) {
	objects, err := plan(&hcov1.HyperConverged{}, infra{}, testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	position := map[string]int{}
	for i, object := range objects {
		position[object.GetKind()+"/"+object.GetName()] = i
	}
	for _, pair := range [][2]string{
		{"PriorityClass/kubevirt-cluster-critical", "Deployment/virt-controller"},
		{"ServiceAccount/virt-handler", "DaemonSet/virt-handler"},
		{"ClusterRoleBinding/virt-api", "Deployment/virt-api"},
	} {
		first, okFirst := position[pair[0]]
		second, okSecond := position[pair[1]]
		if !okFirst || !okSecond || first > second {
			t.Errorf("%s (%v) is to come before %s (%v)", pair[0], first, pair[1], second)
		}
	}
}

func TestBundleGoesIntoEveryNamespace(t *testing.T) {
	files := fstest.MapFS{"tasks/one/task.yaml": {Data: []byte(`
apiVersion: tekton.dev/v1
kind: Task
metadata: {name: one}
spec: {steps: [{name: run, image: "ghcr.io/slipway-vm/slipway:devel", command: [/slipway]}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: one}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: one}
subjects: [{kind: ServiceAccount, name: one}]
`)}}
	objects, err := planBundle(Bundle{Name: "tasks", Files: files}, []string{"a", "b"}, testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, filepath.Join("testdata", "bundle.yaml"), objects)
}

func withPods(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var kept []*unstructured.Unstructured
	for _, object := range objects {
		if kind := object.GetKind(); kind == "Deployment" || kind == "DaemonSet" {
			kept = append(kept, object)
		}
	}
	return kept
}

func compareGolden(t *testing.T, path string, objects []*unstructured.Unstructured) {
	t.Helper()
	var got bytes.Buffer
	for _, object := range objects {
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString("---\n")
		got.Write(content)
	}
	fixture.Golden(t, path, got.Bytes())
}
