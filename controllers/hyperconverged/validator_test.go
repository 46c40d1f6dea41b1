package hyperconverged

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/registries"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// registriesConfs is a reader of ConfigMaps in Slipway's namespace, whose registries.conf it has by their name.
type registriesConfs struct {
	client.Reader
	byName map[string]string
}

func (r registriesConfs) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	text, there := r.byName[key.Name]
	if !there || key.Namespace != testOptions().Namespace {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	into.(*corev1.ConfigMap).Data = map[string]string{registries.Key: text}
	return nil
}

func TestARegistriesConfIsCheckedWhenItIsNamed(t *testing.T) {
	v := &validator{
		reader:  registriesConfs{byName: map[string]string{"good": "", "bad": "[[registry]]\nlocation = \"https://a.example.com\"\n"}},
		decoder: admission.NewDecoder(scheme.New()), options: testOptions(),
	}
	object := func(configMap string) runtime.RawExtension {
		data, err := json.Marshal(&hcov1.HyperConverged{
			TypeMeta: metav1.TypeMeta{APIVersion: hcov1.GroupVersion.String(), Kind: "HyperConverged"},
			ObjectMeta: metav1.ObjectMeta{
				Name: names.HyperConvergedName, Namespace: testOptions().Namespace,
				Annotations: map[string]string{names.AnnotationRegistries: configMap},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: data}
	}
	for name, c := range map[string]struct {
		now, before   string // no name before: a creation
		refusal, warn string
	}{
		"a good one":            {now: "good"},
		"a bad one":             {now: "bad", refusal: "registries.conf of ConfigMap " + testOptions().Namespace + "/bad: registry[0]"},
		"a change to a bad one": {now: "bad", before: "good", refusal: "/bad"},
		"a bad one as before":   {now: "bad", before: "bad"},
		"one that may come":     {now: "later", before: "good", warn: "/later"},
	} {
		t.Run(name, func(t *testing.T) {
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: object(c.now)}}
			if c.before != "" {
				request.Operation, request.OldObject = admissionv1.Update, object(c.before)
			}
			response := v.Handle(t.Context(), request)
			if response.Allowed != (c.refusal == "") || !response.Allowed && !strings.Contains(response.Result.Message, c.refusal) {
				t.Errorf("got %+v, want refusal %q", response.Result, c.refusal)
			}
			if warnings := strings.Join(response.Warnings, ""); (warnings == "") != (c.warn == "") || !strings.Contains(warnings, c.warn) {
				t.Errorf("got warnings %q, want %q", warnings, c.warn)
			}
		})
	}
}
