//go:build integration

package hyperconverged

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A cluster gets to know populators after Slipway: those of claims are registered then, and nothing
// waits for the kind when it goes.
func registersPopulators(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "volumepopulators." + groupPopulators, Annotations: map[string]string{
			apiextensionsv1.KubeAPIApprovedAnnotation: "https://github.com/kubernetes/enhancements/pull/2934",
		}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: groupPopulators, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "VolumePopulator", Plural: "volumepopulators", Singular: "volumepopulator", ListKind: "VolumePopulatorList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	}
	if err := c.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"VolumeImportSource", "VolumeUploadSource", "VolumeCloneSource"} {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(schema.GroupVersionKind{Group: groupPopulators, Version: "v1beta1", Kind: "VolumePopulator"})
		key := client.ObjectKey{Name: "cdi-" + strings.ToLower(kind)}
		until(t, "populator "+key.Name+" is registered", func() bool {
			err := c.Get(t.Context(), key, found)
			if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			return err == nil
		})
		if source := fmt.Sprint(found.Object["sourceKind"]); source != "map[group:cdi.kubevirt.io kind:"+kind+"]" {
			t.Errorf("it is of %s", source)
		}
	}
	if err := c.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	until(t, "the definition is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(definition), definition))
	})
	waitHCO(t, c, options, "ReconcileComplete", metav1.ConditionTrue, "")
}
