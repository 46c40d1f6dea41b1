package supported_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/slipway-vm/slipway/internal/supported"
)

func TestAnnotationsThatAreNotActedOnAreRefused(t *testing.T) {
	const sidecars, pci = "hooks.kubevirt.io/hookSidecars", "kubevirt.io/placePCIDevicesOnRootComplex"
	for name, c := range map[string]struct {
		now, before map[string]string
		want        []string
	}{
		"none":                           {},
		"one of the user's own":          {now: map[string]string{"example.com/owner": "me"}},
		"one that is acted on":           {now: map[string]string{"kubevirt.io/disablePCIHole64": "true"}},
		"one that changes nothing":       {now: map[string]string{"kubevirt.io/allow-pod-bridge-network-live-migration": "", "vm.kubevirt.io/os": "linux"}},
		"sidecars":                       {now: map[string]string{sidecars: "[]"}, want: []string{sidecars}},
		"another of hooks":               {now: map[string]string{"hooks.kubevirt.io/other": ""}, want: []string{"hooks.kubevirt.io/other"}},
		"a fault":                        {now: map[string]string{"kubevirt.io/func-test-virt-launcher-fail-fast": ""}, want: []string{"kubevirt.io/func-test-virt-launcher-fail-fast"}},
		"two":                            {now: map[string]string{"kubevirt.io/libvirt-log-filters": "3:*", "kubevirt.io/ignitiondata": "{}"}, want: []string{"kubevirt.io/ignitiondata", "kubevirt.io/libvirt-log-filters"}},
		"a switch that is on":            {now: map[string]string{pci: "true"}, want: []string{pci}},
		"a switch that is off":           {now: map[string]string{pci: "false"}},
		"one that was there":             {now: map[string]string{sidecars: "[]"}, before: map[string]string{sidecars: "[]"}},
		"one that was there, otherwise":  {now: map[string]string{sidecars: "[1]"}, before: map[string]string{sidecars: "[]"}, want: []string{sidecars}},
		"one that was there without any": {now: map[string]string{sidecars: ""}, before: map[string]string{"a": ""}, want: []string{sidecars}},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got []string
			for _, one := range c.want {
				want = append(want, "metadata.annotations["+one+"]")
			}
			for _, err := range supported.Annotations(c.now, c.before, field.NewPath("metadata", "annotations")) {
				got = append(got, err.Field)
			}
			if !slices.Equal(got, want) {
				t.Errorf("refused %v, want %v", got, want)
			}
		})
	}
}

func TestTheDocsNameTheAnnotations(t *testing.T) {
	docs := supported.AnnotationsMarkdown()
	for _, name := range []string{"kubevirt.io/disablePCIHole64", "hooks.kubevirt.io/*", "kubevirt.io/keep-launcher-alive-after-failure"} {
		if !strings.Contains(docs, "| `"+name+"` |") {
			t.Errorf("%s is not in the docs", name)
		}
	}
	for _, one := range supported.ActedOn {
		if errs := supported.Annotations(map[string]string{one.Name: "x"}, nil, nil); len(errs) > 0 {
			t.Errorf("%s is acted on, and refused", one.Name)
		}
	}
}
