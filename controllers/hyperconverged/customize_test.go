package hyperconverged

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/customization"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
)

// everywhere is a patch of all that can be patched.
const everywhere = `{"metadata":{"annotations":{"patched":"yes"}}}`

// uploads are the flags of one component.
func uploads() customization.Programs {
	return customization.Programs{"cdi-uploadproxy": func() *pflag.FlagSet {
		flags := pflag.NewFlagSet("uploads", pflag.ContinueOnError)
		flags.Int("verbosity", 1, "")
		return flags
	}}
}

func cdiPatching(name string) *cdiv1.CDI {
	cdi := &cdiv1.CDI{}
	cdi.Spec.CustomizeComponents.Patches = []cdiv1.CustomizeComponentsPatch{{ResourceType: "*", ResourceName: name, Type: cdiv1.MergePatchType, Patch: everywhere}}
	return cdi
}

func TestEachObjectCustomizesItsOwnComponents(t *testing.T) {
	kubevirt := &virtv1.KubeVirt{}
	kubevirt.Spec.CustomizeComponents.Patches = []virtv1.CustomizeComponentsPatch{{ResourceType: "*", ResourceName: "*", Type: virtv1.StrategicMergePatchType, Patch: everywhere}}
	of := map[string]string{
		"Deployment virt-api": "KubeVirt", "Deployment virt-controller": "KubeVirt", "Deployment virt-exportproxy": "KubeVirt", "DaemonSet virt-handler": "KubeVirt",
		"Service virt-api": "KubeVirt", "Service virt-exportproxy": "KubeVirt", "Service kubevirt-prometheus-metrics": "KubeVirt",
		"Deployment cdi-uploadproxy": "CDI", "Service cdi-uploadproxy": "CDI",
	}
	for name, asked := range map[string]asker{"KubeVirt": {kubevirt: kubevirt}, "CDI": {cdi: cdiPatching("*")}} {
		planned, err := plan(&hcov1.HyperConverged{}, infra{}, testOptions().Values())
		if err != nil {
			t.Fatal(err)
		}
		made, errs := customize(planned, asked.kubevirt, asked.cdi, nil)
		if len(errs) > 0 || len(made) != len(planned) {
			t.Fatalf("%s: %d of %d, %v", name, len(made), len(planned), errs)
		}
		for i, object := range made {
			key := object.GetKind() + " " + object.GetName()
			if identify(object) != identify(planned[i]) {
				t.Errorf("%s: %s is where %s was", name, key, planned[i].GetName())
			}
			if patched := object.GetAnnotations()["patched"] == "yes"; patched != (of[key] == name) {
				t.Errorf("%s: %s is patched: %t", name, key, patched)
			}
		}
	}
}

func TestNothingIsAppliedOfWhatCannotBeCustomized(t *testing.T) {
	r := &Reconciler{Options: testOptions()}
	planned, err := plan(&hcov1.HyperConverged{}, infra{}, testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	s := &scope{hco: &hcov1.HyperConverged{}, wanted: planned, cdi: cdiPatching("cdi-apiserver")}
	if err := r.customizeComponents(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	const want = `customizing components: spec.customizeComponents.patches[0].resourceName: Unsupported value: "cdi-apiserver"`
	if s.uncustomized == nil || !strings.HasPrefix(s.uncustomized.Error(), want) || len(s.customized) > 0 {
		t.Errorf("got %v and %v, want %s", s.uncustomized, s.customized, want)
	}
	s.cdi = cdiPatching("cdi-uploadproxy")
	if s.uncustomized = nil; r.customizeComponents(t.Context(), s) != nil || s.uncustomized != nil || len(s.customized) != 2 {
		t.Errorf("got %v and %v, want the Deployment and the Service", s.uncustomized, s.customized)
	}
}

func TestPlacementsAreOfBothObjects(t *testing.T) {
	kubevirt, cdi := &virtv1.KubeVirt{}, &cdiv1.CDI{}
	placed := func(where string) *virtv1.ComponentConfig {
		return &virtv1.ComponentConfig{NodePlacement: &virtv1.NodePlacement{
			NodeSelector: map[string]string{"is": where}, Tolerations: []corev1.Toleration{{Key: where}},
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 3}}}},
		}}
	}
	kubevirt.Spec.Infra, kubevirt.Spec.Workloads = placed("infra"), placed("workloads")
	cdi.Spec.Infra.NodePlacement = sdkapi.NodePlacement(*placed("cdi").NodePlacement)
	objects, err := plan(&hcov1.HyperConverged{}, infraOf(kubevirt, cdi), testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]string{"virt-api": "infra", "virt-controller": "infra", "virt-exportproxy": "infra", "virt-handler": "workloads", "cdi-uploadproxy": "cdi"}
	for _, object := range withPods(objects) {
		pod, _, err := unstructured.NestedMap(object.Object, "spec", "template", "spec")
		if err != nil {
			t.Fatal(err)
		}
		where := of[object.GetName()]
		selector, _ := pod["nodeSelector"].(map[string]any)
		tolerations, _ := json.Marshal(pod["tolerations"])
		if selector["is"] != where || !strings.Contains(string(tolerations), `"key":"`+where+`"`) || !strings.Contains(string(tolerations), "CriticalAddonsOnly") || pod["affinity"] == nil {
			t.Errorf("%s is to be on %v with %s and %v, want %s", object.GetName(), selector, tolerations, pod["affinity"], where)
		}
	}
}

func TestWhatHyperConvergedSaysOfNodesIsSaidByKubeVirt(t *testing.T) {
	hco := &hcov1.HyperConverged{}
	spec := func() map[string]any {
		objects, err := operands(hco, testOptions().Values())
		if err != nil {
			t.Fatal(err)
		}
		return objects[0].Object["spec"].(map[string]any)
	}
	if said := spec(); said["infra"] != nil || said["workloads"] != nil {
		t.Errorf("nothing is asked for, and KubeVirt says %v, %v", said["infra"], said["workloads"])
	}
	hco.Spec.Deployment.NodePlacements.Infra = &sdkapi.NodePlacement{}
	hco.Spec.Deployment.NodePlacements.Workload = &sdkapi.NodePlacement{NodeSelector: map[string]string{"vms": "yes"}, Affinity: &corev1.Affinity{}}
	said, _ := json.Marshal([]any{spec()["infra"], spec()["workloads"]})
	if want := `[null,{"nodePlacement":{"nodeSelector":{"vms":"yes"}}}]`; string(said) != want {
		t.Errorf("got %s, want %s", said, want)
	}
}

func TestAnnotationsThatCannotCustomizeAreRefused(t *testing.T) {
	patch := func(what string) string {
		return `[{"op":"add","path":"/spec/customizeComponents","value":{"patches":[{"resourceType":"Deployment","resourceName":"` + what + `","type":"json","patch":"[{\"op\":\"remove\",\"path\":\"/spec/replicas\"}]"}]}}]`
	}
	for annotation, component := range map[string]string{hcov1.AnnotationKubeVirtPatch: "virt-api", hcov1.AnnotationCDIPatch: "cdi-uploadproxy"} {
		for name, refused := range map[string]bool{component: false, "virt-operator": true} {
			hco := &hcov1.HyperConverged{}
			hco.Name, hco.Namespace = names.HyperConvergedName, testOptions().Namespace
			hco.Annotations = map[string]string{annotation: patch(name)}
			err := validate(hco, testOptions())
			if (err != nil) != refused || refused && (!strings.Contains(err.Error(), annotation) || !strings.Contains(err.Error(), "patches[0].resourceName")) {
				t.Errorf("%s of %s: %v, want a refusal: %t", name, annotation, err, refused)
			}
		}
	}
}

// TestTheAPIServerIsAsked plays an API server that refuses Deployments with an annotation, or with a toleration.
func TestTheAPIServerIsAsked(t *testing.T) {
	refuse := func(_ context.Context, object *unstructured.Unstructured) error {
		content, _ := json.Marshal(object.Object)
		if object.GetAnnotations()["patched"] == "" && !strings.Contains(string(content), "mistake") {
			return nil
		}
		return apierrors.NewInvalid(schema.GroupKind{Kind: object.GetKind()}, object.GetName(), nil)
	}
	v := &cdiValidator{judge: judge{options: testOptions(), try: refuse}}
	v.judge.options.Programs = uploads()
	misplaced := &cdiv1.CDI{}
	misplaced.Spec.Infra.Tolerations = []corev1.Toleration{{Key: "mistake"}}
	both := cdiPatching("*")
	both.Spec.Infra = misplaced.Spec.Infra
	flagged := func(flag string) *cdiv1.CDI {
		cdi := &cdiv1.CDI{}
		cdi.Spec.CustomizeComponents.Flags = &cdiv1.Flags{UploadProxy: map[string]string{flag: "3"}}
		return cdi
	}
	for name, c := range map[string]struct {
		now, before *cdiv1.CDI
		another     bool
		want        string // of the refusal
	}{
		"a patch":              {now: cdiPatching("cdi-uploadproxy"), want: "spec.customizeComponents: Invalid value: Service cdi-uploadproxy could not be deployed"},
		"a placement":          {now: misplaced, want: "spec.infra: Invalid value: Deployment cdi-uploadproxy could not be deployed"},
		"what it had before":   {now: both, before: both},
		"another object":       {now: cdiPatching("x"), another: true},
		"a patch of nothing":   {now: cdiPatching("cdi-deployment"), want: `patches[0].resourceName: Unsupported value: "cdi-deployment": supported values: "cdi-uploadproxy"`},
		"a flag":               {now: flagged("verbosity")},
		"a flag that is not":   {now: flagged("depth"), want: "spec.customizeComponents.flags.uploadProxy[depth]"},
		"nothing":              {now: &cdiv1.CDI{}},
		"one that is put back": {now: &cdiv1.CDI{}, before: both},
	} {
		t.Run(name, func(t *testing.T) {
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Update, Name: names.CDIName}}
			if c.another {
				request.Name = "another"
			}
			request.Object.Raw, _ = json.Marshal(c.now)
			if c.before != nil {
				request.OldObject.Raw, _ = json.Marshal(c.before)
			}
			response := v.Handle(t.Context(), request)
			if response.Allowed != (c.want == "") || !response.Allowed && !strings.Contains(response.Result.Message, c.want) {
				t.Errorf("got %+v, want %q", response.Result, c.want)
			}
		})
	}
}
