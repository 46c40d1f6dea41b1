package fuzz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apijson "k8s.io/apimachinery/pkg/util/json"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	admissionserver "github.com/slipway-vm/slipway/controllers/admission"
	"github.com/slipway-vm/slipway/controllers/featuregate"
)

// errUnspoken is a refusal that does not say of which field it is.
var errUnspoken = errors.New("the refusal names no path")

// gate is the way of a new object through an API server and virt-api, without either.
type gate struct {
	definition *definition
	handlers   map[string]admission.Handler
}

func newGate() (*gate, error) {
	definition, err := readDefinition("kubevirt.io_virtualmachineinstances.yaml", "v1")
	if err != nil {
		return nil, err
	}
	now := func() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }
	return &gate{definition: definition, handlers: admissionserver.Handlers(open{}, nil, "slipway", now)}, nil
}

// open is a cluster with nothing in it but a KubeVirt object that has every feature gate on.
type open struct{}

// Get finds nothing.
func (open) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", object)}, key.Name)
}

// List finds the KubeVirt object.
func (open) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if kubevirts, ok := list.(*virtv1.KubeVirtList); ok {
		kubevirts.Items = make([]virtv1.KubeVirt, 1)
		kubevirts.Items[0].Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{FeatureGates: featuregate.Known()}
	}
	return nil
}

// pass returns object as it is stored, nil when it is refused, and an error when that is not as it
// should be: a refusal without a path, or an answer that is none.
func (g *gate) pass(ctx context.Context, object map[string]any) (*virtv1.VirtualMachineInstance, error) {
	g.definition.complete(object)
	if len(g.definition.validate(object)) > 0 {
		return nil, nil // the API server has refused it; what it says is not ours
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	response := g.ask(ctx, "/virtualmachineinstances-mutate", raw)
	if !response.Allowed {
		return nil, unlessSpoken(response)
	}
	if raw, err = patched(raw, response); err != nil {
		return nil, err
	}
	var completed map[string]any
	if err := apijson.Unmarshal(raw, &completed); err != nil {
		return nil, fmt.Errorf("decoding the completed object: %w", err)
	}
	if errs := g.definition.validate(completed); len(errs) > 0 {
		return nil, fmt.Errorf("the webhook made an object of it that its definition refuses: %w", errs.ToAggregate())
	}
	if response := g.ask(ctx, "/virtualmachineinstances-validate", raw); !response.Allowed {
		return nil, unlessSpoken(response)
	}
	vmi := &virtv1.VirtualMachineInstance{}
	if err := json.Unmarshal(raw, vmi); err != nil {
		return nil, fmt.Errorf("decoding the admitted object: %w", err)
	}
	return vmi, nil
}

func (g *gate) ask(ctx context.Context, path string, raw []byte) admission.Response {
	return g.handlers[path].Handle(ctx, admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: "prod", Name: "x", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
		Kind: metav1.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"},
	}})
}

// patched is raw with the response's patch.
func patched(raw []byte, response admission.Response) ([]byte, error) {
	if len(response.Patches) == 0 {
		return raw, nil
	}
	operations, err := json.Marshal(response.Patches)
	if err != nil {
		return nil, fmt.Errorf("encoding the webhook's patch: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, fmt.Errorf("decoding the webhook's patch: %w", err)
	}
	changed, err := patch.Apply(raw)
	if err != nil {
		return nil, fmt.Errorf("applying the webhook's patch: %w", err)
	}
	return changed, nil
}

// unlessSpoken returns an error for a refusal that has no path in one of its causes.
func unlessSpoken(response admission.Response) error {
	if response.Result == nil || response.Result.Details == nil || len(response.Result.Details.Causes) == 0 {
		return fmt.Errorf("%w: %+v", errUnspoken, response.Result)
	}
	for _, cause := range response.Result.Details.Causes {
		if !strings.HasPrefix(cause.Field, "spec") || cause.Message == "" {
			return fmt.Errorf("%w: %+v", errUnspoken, cause)
		}
	}
	return nil
}
