//go:build integration

package hyperconverged

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// editKubeVirt edits the KubeVirt object's spec by hand.
func editKubeVirt(t *testing.T, c client.WithWatch, options Options, spec string) {
	t.Helper()
	if err := c.Patch(t.Context(), theKubeVirt(options), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))); err != nil {
		t.Fatal(err)
	}
}

// waitDeployment waits until the component is as told.
func waitDeployment(t *testing.T, c client.WithWatch, options Options, name, what string, is func(*corev1.PodTemplateSpec) bool) {
	t.Helper()
	wait(t, c, &appsv1.DeploymentList{}, client.ObjectKey{Namespace: options.Namespace, Name: name}, name+" "+what, func(d *appsv1.Deployment) bool {
		return is(&d.Spec.Template)
	})
}

// tolerates says whether pods of template may run where taints of key are.
func tolerates(template *corev1.PodTemplateSpec, key string) bool {
	return slices.ContainsFunc(template.Spec.Tolerations, func(toleration corev1.Toleration) bool { return toleration.Key == key })
}

// customizesComponents says in the KubeVirt object where pods run and how they differ, and takes it back.
func customizesComponents(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	ofHandler := client.ObjectKey{Namespace: options.Namespace, Name: "virt-handler"}
	uploads := &appsv1.Deployment{}
	get(t, c, client.ObjectKey{Namespace: options.Namespace, Name: "cdi-uploadproxy"}, uploads)
	patch := `{"spec":{"template":{"metadata":{"annotations":{"patched":"yes"}},"spec":{"containers":[{"name":"virt-api","resources":{"requests":{"memory":"123Mi"}}}]}}}}`
	editKubeVirt(t, c, options, `{"infra":{"nodePlacement":{"nodeSelector":{"infra":"yes"},"tolerations":[{"key":"infra","operator":"Exists"}]}},`+
		`"workloads":{"nodePlacement":{"tolerations":[{"key":"vms","operator":"Exists"}]}},`+
		`"customizeComponents":{"patches":[{"resourceType":"Deployment","resourceName":"virt-api","type":"strategic","patch":`+fmt.Sprintf("%q", patch)+`}]}}`)
	waitDeployment(t, c, options, "virt-api", "is patched", func(template *corev1.PodTemplateSpec) bool {
		return template.Annotations["patched"] == "yes" && template.Spec.Containers[0].Resources.Requests.Memory().String() == "123Mi" &&
			template.Spec.NodeSelector["infra"] == "yes" && tolerates(template, "infra")
	})
	waitDeployment(t, c, options, "virt-controller", "is placed", func(template *corev1.PodTemplateSpec) bool {
		return tolerates(template, "infra") && template.Annotations["patched"] == ""
	})
	wait(t, c, &appsv1.DaemonSetList{}, ofHandler, "virt-handler is placed", func(d *appsv1.DaemonSet) bool {
		return tolerates(&d.Spec.Template, "vms") && !tolerates(&d.Spec.Template, "infra")
	})
	editKubeVirt(t, c, options, `{"infra":null,"workloads":null,"customizeComponents":null}`)
	for _, component := range []string{"virt-api", "virt-controller"} {
		waitDeployment(t, c, options, component, "is as it was", func(template *corev1.PodTemplateSpec) bool {
			return template.Annotations["patched"] == "" && template.Spec.Containers[0].Resources.Requests.Memory().String() != "123Mi" &&
				template.Spec.NodeSelector["infra"] == "" && !tolerates(template, "infra")
		})
	}
	wait(t, c, &appsv1.DaemonSetList{}, ofHandler, "virt-handler is as it was", func(d *appsv1.DaemonSet) bool { return !tolerates(&d.Spec.Template, "vms") })
	after := &appsv1.Deployment{}
	if get(t, c, client.ObjectKeyFromObject(uploads), after); after.Generation != uploads.Generation {
		t.Errorf("the KubeVirt object changed cdi-uploadproxy: %+v", after.Spec.Template)
	}
	rollOut(t, c, options)
	waitHCO(t, c, options, "Available", metav1.ConditionTrue, "")
}

// leavesWhatCannotBeCustomized has a patch be one that does not apply any more, since what it patches is planned otherwise.
func leavesWhatCannotBeCustomized(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	log := func(levels string) {
		t.Helper()
		change := `{"spec":{"deployment":{"logVerbosityConfig":{"kubevirt":` + levels + `}}}}`
		if err := c.Patch(t.Context(), theObject(options), client.RawPatch(types.MergePatchType, []byte(change))); err != nil {
			t.Fatal(err)
		}
	}
	logs := func(level string) func(*corev1.PodTemplateSpec) bool {
		return func(template *corev1.PodTemplateSpec) bool {
			return strings.Contains(strings.Join(template.Spec.Containers[0].Args, " "), "--verbosity="+level)
		}
	}
	patch := `[{"op":"test","path":"/spec/template/spec/containers/0/args/3","value":"--verbosity=7"},{"op":"add","path":"/metadata/annotations","value":{"patched":"yes"}}]`
	editKubeVirt(t, c, options, fmt.Sprintf(`{"customizeComponents":{"patches":[{"resourceType":"deployment","resourceName":"virt-api","type":"json","patch":%q}]}}`, patch))
	key := client.ObjectKey{Namespace: options.Namespace, Name: "virt-api"}
	wait(t, c, &appsv1.DeploymentList{}, key, "virt-api is patched", func(d *appsv1.Deployment) bool { return d.Annotations["patched"] == "yes" })

	rollOut(t, c, options)
	waitHCO(t, c, options, "Available", metav1.ConditionTrue, "")

	log(`{"virtAPI":6,"virtController":6}`)
	waitHCO(t, c, options, "Degraded", metav1.ConditionTrue, "spec.customizeComponents.patches[0].patch: Invalid value: it does not apply to Deployment virt-api")
	waitHCO(t, c, options, "Available", metav1.ConditionTrue, "")
	wait(t, c, &virtv1.KubeVirtList{}, client.ObjectKeyFromObject(theKubeVirt(options)), "KubeVirt tells it, too", func(k *virtv1.KubeVirt) bool {
		return slices.ContainsFunc(k.Status.Conditions, func(condition virtv1.KubeVirtCondition) bool {
			return condition.Type == virtv1.KubeVirtConditionDegraded && condition.Status == corev1.ConditionTrue && strings.Contains(condition.Message, "patches[0].patch")
		})
	})
	for name, level := range map[string]string{"virt-api": "7", "virt-controller": "2"} {
		deployment := &appsv1.Deployment{}
		get(t, c, client.ObjectKey{Namespace: options.Namespace, Name: name}, deployment)
		if !logs(level)(&deployment.Spec.Template) {
			t.Errorf("%s was changed: %v", name, deployment.Spec.Template.Spec.Containers[0].Args)
		}
	}

	editKubeVirt(t, c, options, `{"customizeComponents":null}`)
	for _, name := range []string{"virt-api", "virt-controller"} {
		waitDeployment(t, c, options, name, "is as it is planned", logs("6"))
	}
	wait(t, c, &appsv1.DeploymentList{}, key, "virt-api is not patched any more", func(d *appsv1.Deployment) bool { return d.Annotations["patched"] == "" })
	waitHCO(t, c, options, "Degraded", metav1.ConditionFalse, "")
	log(`{"virtAPI":7,"virtController":null}`)
	for name, level := range map[string]string{"virt-api": "7", "virt-controller": "2"} {
		waitDeployment(t, c, options, name, "is as it was", logs(level))
	}
	rollOut(t, c, options)
	waitHCO(t, c, options, "Available", metav1.ConditionTrue, "")
}

// TestPlacementsOfHyperConvergedAndOfUsers has both say where pods run, in turn, of both objects.
func TestPlacementsOfHyperConvergedAndOfUsers(t *testing.T) {
	definitions := append(apiserver.Only(t, "components/crds", "cdi.kubevirt.io"), "components/crds/kubevirt.io_kubevirts.yaml")
	c, err := client.New(apiserver.Start(t, definitions...), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	options := testOptions()
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: options.Namespace}}); err != nil {
		t.Fatal(err)
	}
	hco := &hcov1.HyperConverged{}
	reconcile := func() {
		t.Helper()
		objects, err := operands(hco, options.Values())
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects[:2] {
			if err := apply.Object(t.Context(), c, object, names.ManagerOperator); err != nil {
				t.Fatal(err)
			}
		}
	}
	edit := func(kubevirt, cdi string) {
		t.Helper()
		for object, spec := range map[client.Object]string{theKubeVirt(options): kubevirt, &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: names.CDIName}}: cdi} {
			if err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := func(when, selector, tolerated string) {
		t.Helper()
		kubevirt, cdi := theKubeVirt(options), &cdiv1.CDI{}
		for object, key := range map[client.Object]client.ObjectKey{kubevirt: client.ObjectKeyFromObject(kubevirt), cdi: {Name: names.CDIName}} {
			if err := c.Get(t.Context(), key, object); err != nil {
				t.Fatal(err)
			}
		}
		asked := infraOf(kubevirt, cdi)
		for class, placement := range asked.placements {
			got := &sdkapi.NodePlacement{}
			if placement != nil {
				got = placement
			}
			var keys []string
			for _, toleration := range got.Tolerations {
				keys = append(keys, toleration.Key)
			}
			if fmt.Sprint(got.NodeSelector) != selector || strings.Join(keys, " ") != tolerated {
				t.Errorf("%s: pods of class %d are to be on %v and tolerate %q, want %s and %q", when, class, got.NodeSelector, keys, selector, tolerated)
			}
		}
	}
	placement := func(selector, toleration string) *sdkapi.NodePlacement {
		said := &sdkapi.NodePlacement{NodeSelector: map[string]string{selector: "yes"}}
		if toleration != "" {
			said.Tolerations = []corev1.Toleration{{Key: toleration, Operator: corev1.TolerationOpExists}}
		}
		return said
	}
	users := `{"nodeSelector":{"user":"yes"},"tolerations":[{"key":"user","operator":"Exists"}]}`
	reconcile()
	want("nobody says anything", "map[]", "")
	edit(`{"infra":{"nodePlacement":`+users+`},"workloads":{"nodePlacement":`+users+`}}`, `{"infra":`+users+`}`)
	reconcile()
	want("a user does", "map[user:yes]", "user")
	hco.Spec.Deployment.NodePlacements.Infra, hco.Spec.Deployment.NodePlacements.Workload = placement("hco", ""), placement("hco", "")
	reconcile()
	want("HyperConverged says a label, too", "map[hco:yes user:yes]", "user")
	hco.Spec.Deployment.NodePlacements.Infra, hco.Spec.Deployment.NodePlacements.Workload = placement("new", "hco"), placement("new", "hco")
	reconcile()
	want("and then another, and a toleration", "map[new:yes user:yes]", "hco")
	edit(`{"infra":{"nodePlacement":`+users+`},"workloads":{"nodePlacement":`+users+`}}`, `{"infra":`+users+`}`)
	reconcile()
	want("a user insists", "map[new:yes user:yes]", "hco")
	hco.Spec.Deployment.NodePlacements = hcov1.NodePlacements{}
	reconcile()
	want("HyperConverged says nothing any more", "map[user:yes]", "")
	edit(`{"infra":null,"workloads":null}`, `{"infra":null}`)
	reconcile()
	want("and nobody does", "map[]", "")
}
