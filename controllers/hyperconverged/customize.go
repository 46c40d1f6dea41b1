package hyperconverged

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/customization"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// customizedPath is where both objects say how components differ from what they are made of.
var customizedPath = field.NewPath("spec", "customizeComponents")

// customize returns planned, the components, as the KubeVirt object makes those that are deployed for it, and the CDI object the others.
// Either may be nil.
func customize(planned []*unstructured.Unstructured, kubevirt *virtv1.KubeVirt, cdi *cdiv1.CDI, programs customization.Programs) ([]*unstructured.Unstructured, field.ErrorList) {
	made := make([]*unstructured.Unstructured, len(planned))
	var errs field.ErrorList
	for _, ofCDI := range []bool{false, true} {
		asked := customization.OfKubeVirt(kubevirt)
		if ofCDI {
			asked = customization.OfCDI(cdi)
		}
		var places []int
		var own []*unstructured.Unstructured
		for i, object := range planned {
			if isCDIs(object) == ofCDI {
				places, own = append(places, i), append(own, object)
			}
		}
		changed, problems := asked.Apply(own, programs, customizedPath)
		errs = append(errs, problems...)
		for i, place := range places {
			made[place] = changed[i]
		}
	}
	return made, errs
}

// isCDIs says whether object is deployed for the CDI object.
func isCDIs(object *unstructured.Unstructured) bool {
	return object.GetLabels()[LabelComponent] == components.UploadProxy
}

// customizeComponents makes the wanted components what the KubeVirt and the CDI object make of them. Where that cannot be done none is applied: half of it would
// be another installation than anybody asked for.
func (r *Reconciler) customizeComponents(_ context.Context, s *scope) error {
	made, errs := customize(s.wanted, s.kubevirt, s.cdi, r.Options.Programs)
	if len(errs) > 0 {
		s.uncustomized = fmt.Errorf("customizing components: %w", errs.ToAggregate())
		return nil
	}
	s.customized = map[identity]bool{}
	for i, object := range made {
		if object != s.wanted[i] {
			s.customized[identify(object)] = true
		}
	}
	s.wanted = made
	return nil
}

// tryCustomized has the API server judge the components that were customized before any of them is applied.
func (r *Reconciler) tryCustomized(ctx context.Context, s *scope) error {
	for _, object := range s.wanted {
		id := identify(object)
		if !s.customized[id] {
			continue
		}
		content, err := hashOf(object)
		if err != nil {
			return err
		}
		if r.tried.matches(id, record{content: content}) {
			continue
		}
		if err := try(ctx, r.Client, object); err != nil {
			return fmt.Errorf("trying %s %s as %s has it: %w", id.Kind, id.Name, customizedPath, err)
		}
		r.tried.put(id, record{content: content})
	}
	return nil
}

// try has the API server judge object, and store nothing. Where another's webhook cannot do that, it is found out when object is applied.
func try(ctx context.Context, c client.Client, object *unstructured.Unstructured) error {
	err := apply.Object(ctx, client.NewDryRunClient(c), object.DeepCopy(), names.ManagerOperator)
	if err != nil && strings.Contains(err.Error(), "does not support dry run") {
		return nil
	}
	return err //nolint:wrapcheck // it says what was done
}
