package hyperconverged

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/customization"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
)

// validator admits HyperConverged objects that the operator can act on, and their deletion
// when no virtual machine is left.
type validator struct {
	reader  client.Reader
	decoder admission.Decoder
	options Options
}

// Handle answers one admission request.
func (v *validator) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.Operation == admissionv1.Delete {
		return v.deletion(ctx, request)
	}
	hco := &hcov1.HyperConverged{}
	if err := v.decoder.Decode(request, hco); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding HyperConverged %s: %w", request.Name, err))
	}
	if hco.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	if err := validate(hco, v.options); err != nil {
		return admission.Denied(err.Error())
	}
	return v.registries(ctx, request, hco)
}

// registries checks the registries.conf that an annotation names anew. One that does not exist may be on its way.
func (v *validator) registries(ctx context.Context, request admission.Request, hco *hcov1.HyperConverged) admission.Response {
	var before client.Object
	if request.Operation == admissionv1.Update {
		old := &hcov1.HyperConverged{}
		if err := v.decoder.DecodeRaw(request.OldObject, old); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding what HyperConverged %s was: %w", request.Name, err))
		}
		before = old
	}
	problem, err := cdiconfig.CheckRegistries(ctx, v.reader, v.options.Namespace, hco, before)
	switch {
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	case errors.Is(problem, cdiconfig.ErrNoConfigMap):
		return admission.Allowed("").WithWarnings(problem.Error() + "; images of registries are not imported before")
	case problem != nil:
		return admission.Denied(problem.Error())
	}
	return admission.Allowed("")
}

// validate says what of hco the operator cannot do.
func validate(hco *hcov1.HyperConverged, options Options) error {
	if hco.Name != names.HyperConvergedName {
		return fmt.Errorf("metadata.name: %q: the HyperConverged object is named %s, there is one", hco.Name, names.HyperConvergedName)
	}
	if hco.Namespace != options.Namespace {
		return fmt.Errorf("metadata.namespace: %q: the operator looks at namespace %s only; create the object there", hco.Namespace, options.Namespace)
	}
	if err := checkSources(hco); err != nil {
		return err
	}
	wanted, err := operands(hco, options.Values())
	if err != nil {
		return err
	}
	if err := checkCustomization(hco, wanted, options); err != nil {
		return err
	}
	for _, object := range wanted {
		if object.GroupVersionKind() != sspKind {
			continue
		}
		spec, err := settings(object)
		if err != nil {
			return err
		}
		if _, err := sizesWanted(hco, wanted[0], spec); err != nil {
			return fmt.Errorf("annotation %s: %w", hcov1.AnnotationKubeVirtPatch, err)
		}
	}
	return nil
}

// checkCustomization says what is wrong with how operands, by annotations of HyperConverged, customize the components.
func checkCustomization(hco *hcov1.HyperConverged, operands []*unstructured.Unstructured, options Options) error {
	asked, err := askerOf(operands)
	if err != nil {
		return err
	}
	if customization.OfKubeVirt(asked.kubevirt).Empty() && customization.OfCDI(asked.cdi).Empty() {
		return nil
	}
	_, _, errs, err := judge{options: options}.made(hco, asked)
	if err != nil {
		return err
	}
	if len(errs) > 0 {
		return fmt.Errorf("annotations %s and %s: %w", hcov1.AnnotationKubeVirtPatch, hcov1.AnnotationCDIPatch, errs.ToAggregate())
	}
	return nil
}

// sspValidator admits the SSP object where the operator looks at it: in its namespace. All else
// of it the definition says.
func sspValidator(namespace string) admission.HandlerFunc {
	return func(_ context.Context, request admission.Request) admission.Response {
		if request.Namespace != namespace {
			return admission.Denied(fmt.Sprintf("metadata.namespace: %q: the operator looks at the SSP object in namespace %s only; "+
				"HyperConverged creates it there", request.Namespace, namespace))
		}
		return admission.Allowed("")
	}
}

func (v *validator) deletion(ctx context.Context, request admission.Request) admission.Response {
	if request.Name != names.HyperConvergedName || request.Namespace != v.options.Namespace {
		return admission.Allowed("") // not the one that brought anything up
	}
	left, err := workloadsLeft(ctx, v.reader, using...)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if len(left) > 0 {
		return admission.Denied(fmt.Sprintf("HyperConverged %s cannot be deleted (uninstallStrategy %s): %s",
			request.Name, hcov1.BlockUninstall, blockedMessage(left)))
	}
	return admission.Allowed("")
}
