package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/customization"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
)

// Each component whose flags can be set has that of its logs, on top of those that the operator gives it.
func TestComponentsHaveTheFlagsOfTheirPrograms(t *testing.T) {
	for component := range componentFlags() {
		objects, err := render.Folder(components.Files(), component, render.Values{Namespace: "slipway", SlipwayImage: "a", LauncherImage: "b", GuestfsImage: "c"})
		if err != nil {
			t.Fatal(err)
		}
		for flag, wrong := range map[string]int{"verbosity": 0, "namespace": 1, "nothing": 1} {
			asked := customization.Customization{Flags: []customization.Flags{{Field: "x", Component: component, Values: map[string]string{flag: "3"}}}}
			if _, errs := asked.Apply(objects, componentFlags(), field.NewPath("c")); len(errs) != wrong {
				t.Errorf("--%s of %s: %v, want %d errors", flag, component, errs, wrong)
			}
		}
		first, second := componentFlags()[component](), componentFlags()[component]()
		if err := first.Set("verbosity", "7"); err != nil || second.Lookup("verbosity").Value.String() == "7" {
			t.Errorf("%s: flags that were set stay set: %v", component, err)
		}
	}
}
