package virtualmachine

import (
	"bytes"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/catalog"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// shipped reads the common objects of a folder of the catalog.
func shipped[T any](t *testing.T, folder string) []T {
	t.Helper()
	files, err := fs.Sub(catalog.Types(), folder)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := fs.Glob(files, "*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("listing %s: %v, %v", folder, paths, err)
	}
	var all []T
	for _, path := range paths {
		content, err := fs.ReadFile(files, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(content, []byte("---\n"))[1:] {
			var one T
			if err := yaml.UnmarshalStrict(document, &one); err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
	}
	return all
}

// refusals returns the fields for which a plain VM is refused, below its domain.
func refusals(t *testing.T, it *v1beta1.VirtualMachineInstancetypeSpec, preference *v1beta1.VirtualMachinePreferenceSpec) []string {
	t.Helper()
	vm := fixture.VM("default", "plain", fixture.ContainerDisk("registry.test/guest:1"), fixture.Sizes("some", "some"))
	fields := map[string]bool{}
	for _, err := range Validate(vm, Referred{Instancetype: it, Preference: preference}, field.NewPath("spec")) {
		if !strings.Contains(err.Detail, "(set by the instance type or preference, or by the VM itself)") {
			t.Errorf("%v does not say where it comes from", err)
		}
		fields[strings.TrimPrefix(strings.TrimPrefix(err.Field, "spec."), "domain.")] = true
	}
	return slices.Sorted(maps.Keys(fields))
}

// A VM runs with every shipped instance type, and with every shipped preference but those of
// other processors.
func TestVMsOfShippedInstancetypesRun(t *testing.T) {
	for _, it := range shipped[v1beta1.VirtualMachineClusterInstancetype](t, "instancetypes") {
		if got := refusals(t, &it.Spec, nil); len(got) > 0 {
			t.Errorf("%s is refused for %v", it.Name, got)
		}
	}
}

func TestVMsOfShippedPreferencesRunOrAreRefused(t *testing.T) {
	large := &v1beta1.VirtualMachineInstancetypeSpec{}
	for _, it := range shipped[v1beta1.VirtualMachineClusterInstancetype](t, "instancetypes") {
		if it.Name == "u1.2xlarge" {
			large = &it.Spec
		}
	}
	arch := []string{"architecture"}
	want := map[string][]string{
		"fedora.arm64": arch, "fedora.s390x": arch, "rhel.9.arm64": arch, "rhel.9.s390x": arch, "rhel.10.arm64": arch, "rhel.10.s390x": arch,
	}
	for _, p := range shipped[v1beta1.VirtualMachineClusterPreference](t, "preferences") {
		if got := refusals(t, large, &p.Spec); !slices.Equal(got, want[p.Name]) {
			t.Errorf("%s is refused for %v, want %v", p.Name, got, want[p.Name])
		}
	}
}
