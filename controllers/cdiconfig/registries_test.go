package cdiconfig

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/registries"
)

// shelf is a reader of ConfigMaps, whose data it has by their namespace and name, and of one CDI object.
type shelf struct {
	client.Reader
	cdi        *cdiv1.CDI
	configMaps map[string]map[string]string
}

func (s shelf) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	data, there := s.configMaps[key.String()]
	if !there {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	into.(*corev1.ConfigMap).Data = data
	return nil
}

func (s shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if s.cdi != nil {
		list.(*cdiv1.CDIList).Items = []cdiv1.CDI{*s.cdi}
	}
	return nil
}

func named(configMap string) *cdiv1.CDI {
	return &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: "cdi", Annotations: map[string]string{names.AnnotationRegistries: configMap}}}
}

func TestRegistriesAreTheOnesThatTheCDIObjectNames(t *testing.T) {
	const conf = "[[registry]]\nlocation = \"a.example.com\"\n"
	configMaps := map[string]map[string]string{
		"slipway/mirrors": {registries.Key: conf}, "slipway/other": {"mirrors": conf}, "team/theirs": {registries.Key: conf},
	}
	for name, c := range map[string]struct {
		cdi       *cdiv1.CDI
		conf      string
		wantFault string
	}{
		"nothing is installed":       {},
		"it names none":              {cdi: &cdiv1.CDI{}},
		"it names one":               {cdi: named("mirrors"), conf: conf},
		"it names one of no key":     {cdi: named("other"), wantFault: "ConfigMap slipway/other"},
		"it names one that is not":   {cdi: named("none"), wantFault: "ConfigMap slipway/none"},
		"it names one of other folk": {cdi: named("theirs"), wantFault: "ConfigMap slipway/theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := shelf{cdi: c.cdi, configMaps: configMaps}
			settings, err := Registries(t.Context(), reader, reader, "slipway", []string{"lax"})
			if err != nil || settings.Conf != c.conf || len(settings.Insecure) != 1 {
				t.Errorf("got %+v, %v", settings, err)
			}
			if (settings.Fault == nil) != (c.wantFault == "") || settings.Fault != nil && !strings.Contains(settings.Fault.Error(), c.wantFault) {
				t.Errorf("the fault is %v, want %q", settings.Fault, c.wantFault)
			}
		})
	}
}

func TestOnlyANewNameOfAConfigMapIsChecked(t *testing.T) {
	reader := shelf{configMaps: map[string]map[string]string{
		"slipway/good": {registries.Key: ""}, "slipway/bad": {registries.Key: "location = 1"}, "slipway/idle": {"x": "y"},
	}}
	for name, c := range map[string]struct {
		now, before *cdiv1.CDI
		want        string
	}{
		"no name":               {&cdiv1.CDI{}, named("bad"), ""},
		"a good one":            {named("good"), nil, ""},
		"a bad one":             {named("bad"), nil, "registries.conf of ConfigMap slipway/bad"},
		"a bad one in a change": {named("bad"), named("good"), "registries.conf of ConfigMap slipway/bad"},
		"a bad one as before":   {named("bad"), named("bad"), ""},
		"one without the key":   {named("idle"), nil, "has no key registries.conf"},
		"one that is not there": {named("later"), nil, ErrNoConfigMap.Error()},
		"no possible name":      {named("A b"), nil, "is no name of a ConfigMap"},
	} {
		t.Run(name, func(t *testing.T) {
			var before client.Object
			if c.before != nil {
				before = c.before
			}
			problem, err := CheckRegistries(t.Context(), reader, "slipway", c.now, before)
			if err != nil || (problem == nil) != (c.want == "") || problem != nil && !strings.Contains(problem.Error(), c.want) {
				t.Errorf("got %v, %v; want %q", problem, err, c.want)
			}
			if errors.Is(problem, ErrNoConfigMap) != (c.want == ErrNoConfigMap.Error()) {
				t.Errorf("%v is not told apart", problem)
			}
		})
	}
}
