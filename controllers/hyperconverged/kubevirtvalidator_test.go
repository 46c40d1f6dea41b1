package hyperconverged

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/internal/names"
)

// oneOf is a reader of lists that has one object, of kind.
type oneOf struct {
	client.Reader
	kind string
}

func (r oneOf) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list := into.(*metav1.PartialObjectMetadataList)
	if list.GroupVersionKind().Kind == r.kind {
		list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}}
	}
	return nil
}

func TestTheKubeVirtObjectIsJudged(t *testing.T) {
	request := func(operation admissionv1.Operation, now, before *virtv1.KubeVirtSpec) admission.Request {
		raw := func(spec *virtv1.KubeVirtSpec) (data []byte) {
			if spec != nil {
				data, _ = json.Marshal(&virtv1.KubeVirt{Spec: *spec})
			}
			return data
		}
		r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: operation, Namespace: testOptions().Namespace, Name: names.KubeVirtName,
		}}
		r.Object.Raw, r.OldObject.Raw = raw(now), raw(before)
		return r
	}
	gates := &virtv1.KubeVirtSpec{Configuration: virtv1.KubeVirtConfiguration{
		DeveloperConfiguration: &virtv1.DeveloperConfiguration{FeatureGates: []string{"GPU"}},
	}}
	tagged, other := &virtv1.KubeVirtSpec{ImageTag: "v9"}, &virtv1.KubeVirtSpec{ImageTag: "v9", MonitorNamespace: "m"}
	elsewhere := request(admissionv1.Create, tagged, nil)
	elsewhere.Namespace = "kubevirt"
	patched := func(name string) *virtv1.KubeVirtSpec {
		return &virtv1.KubeVirtSpec{CustomizeComponents: virtv1.CustomizeComponents{Patches: []virtv1.CustomizeComponentsPatch{
			{ResourceName: name, ResourceType: "Deployment", Type: virtv1.MergePatchType, Patch: `{"metadata":{"annotations":{"a":"b"}}}`},
		}}}
	}
	both := patched("cdi-uploadproxy")
	both.CustomizeComponents.Patches = append(both.CustomizeComponents.Patches, patched("virt-operator").CustomizeComponents.Patches...)
	remove := &virtv1.KubeVirtSpec{UninstallStrategy: virtv1.KubeVirtUninstallStrategyRemoveWorkloads}
	for name, c := range map[string]struct {
		request           admission.Request
		left              string
		refusal, warnings string
	}{
		"one of nothing":                {request: request(admissionv1.Create, &virtv1.KubeVirtSpec{}, nil)},
		"a field of nothing":            {request: request(admissionv1.Create, tagged, nil), refusal: "spec.imageTag"},
		"one more":                      {request: request(admissionv1.Update, other, tagged), refusal: "spec.monitorNamespace"},
		"what it had before":            {request: request(admissionv1.Update, tagged, tagged)},
		"another installation's":        {request: elsewhere},
		"a gate of nothing":             {request: request(admissionv1.Update, gates, &virtv1.KubeVirtSpec{}), warnings: "the feature gate GPU"},
		"a patch":                       {request: request(admissionv1.Update, patched("virt-api"), &virtv1.KubeVirtSpec{})},
		"a patch of nothing":            {request: request(admissionv1.Update, patched("cdi-uploadproxy"), patched("virt-api")), refusal: `spec.customizeComponents.patches[0].resourceName: Unsupported value: "cdi-uploadproxy": supported values: "virt-api", "virt-controller", "virt-exportproxy"`},
		"one that it had before":        {request: request(admissionv1.Update, patched("cdi-uploadproxy"), patched("cdi-uploadproxy"))},
		"and one more":                  {request: request(admissionv1.Update, both, patched("cdi-uploadproxy")), refusal: `patches[1].resourceName`},
		"the end without machines":      {request: request(admissionv1.Delete, nil, &virtv1.KubeVirtSpec{}), left: "HostPathProvisioner"},
		"the end with machines":         {request: request(admissionv1.Delete, nil, &virtv1.KubeVirtSpec{}), left: "VirtualMachine", refusal: "still Virtual Machines present: VirtualMachine shop/web"},
		"the end with running machines": {request: request(admissionv1.Delete, nil, &virtv1.KubeVirtSpec{}), left: "VirtualMachineInstance", refusal: "still Virtual Machine Instances present"},
		"the end with sets of machines": {request: request(admissionv1.Delete, nil, &virtv1.KubeVirtSpec{}), left: "VirtualMachineInstanceReplicaSet", refusal: "still Virtual Machine Instance Replica Sets present"},
		"the end with pools":            {request: request(admissionv1.Delete, nil, &virtv1.KubeVirtSpec{}), left: "VirtualMachinePool", refusal: "still Virtual Machine Pools present"},
		"the end of them all":           {request: request(admissionv1.Delete, nil, remove), left: "VirtualMachine"},
	} {
		t.Run(name, func(t *testing.T) {
			v := &kubeVirtValidator{reader: oneOf{kind: c.left}, judge: judge{options: testOptions()}}
			response := v.Handle(t.Context(), c.request)
			if response.Allowed != (c.refusal == "") || !response.Allowed && !strings.Contains(response.Result.Message, c.refusal) {
				t.Errorf("got %+v, want refusal %q", response.Result, c.refusal)
			}
			if warnings := strings.Join(response.Warnings, ""); (warnings == "") != (c.warnings == "") || !strings.Contains(warnings, c.warnings) {
				t.Errorf("got warnings %q, want %q", warnings, c.warnings)
			}
		})
	}
}
