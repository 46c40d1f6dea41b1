package instancetype

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/catalog"
)

// shipped reads the common objects of a folder of the catalog.
func shipped[T any](t *testing.T, folder string) []T {
	t.Helper()
	var all []T
	err := fs.WalkDir(catalog.Types(), folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(catalog.Types(), path)
		if err != nil {
			return err
		}
		for _, document := range bytes.Split(content, []byte("---\n"))[1:] {
			var one T
			if err := yaml.UnmarshalStrict(document, &one); err != nil {
				return err
			}
			all = append(all, one)
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("reading %s: %d objects, %v", folder, len(all), err)
	}
	return all
}

// plain is a VM that leaves all to its instance type and preference.
func plain() *virtv1.VirtualMachineInstance {
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Spec.Domain.Devices.Disks = []virtv1.Disk{{Name: "root"}}
	vmi.Spec.Domain.Devices.Interfaces = []virtv1.Interface{*virtv1.DefaultMasqueradeNetworkInterface()}
	return vmi
}

// Each instance type goes with each preference that does not need more, and gives what it says.
func TestShippedInstancetypesGoWithShippedPreferences(t *testing.T) {
	preferences := shipped[v1beta1.VirtualMachineClusterPreference](t, "preferences")
	fitting := 0
	for _, it := range shipped[v1beta1.VirtualMachineClusterInstancetype](t, "instancetypes") {
		for _, preference := range preferences {
			vmi := plain()
			errs := Apply(vmi, &it.Spec, &preference.Spec, field.NewPath("spec"))
			if fits := fits(&it.Spec, preference.Spec.Requirements); fits != (len(errs) == 0) {
				t.Errorf("%s with %s: fits %v, got %v", it.Name, preference.Name, fits, errs)
			}
			for _, err := range errs {
				if !strings.HasPrefix(err.Detail, "insufficient ") {
					t.Errorf("%s with %s: %v", it.Name, preference.Name, err)
				}
			}
			if len(errs) > 0 {
				continue
			}
			fitting++
			if got := vcpus(vmi.Spec.Domain.CPU); got != it.Spec.CPU.Guest {
				t.Errorf("%s with %s: %d CPUs, want %d", it.Name, preference.Name, got, it.Spec.CPU.Guest)
			}
			if got := vmi.Spec.Domain.Memory.Guest; got.Cmp(it.Spec.Memory.Guest) != 0 {
				t.Errorf("%s with %s: %s, want %s", it.Name, preference.Name, got, it.Spec.Memory.Guest.String())
			}
			checkInputs(t, it.Name+" with "+preference.Name, vmi, preference.Spec.Devices)
			if got := vmi.Spec.Domain.Devices.Disks[0].Disk.Bus; got != preference.Spec.Devices.PreferredDiskBus {
				t.Errorf("%s with %s: the disk is on %s", it.Name, preference.Name, got)
			}
		}
	}
	if fitting < 2000 {
		t.Errorf("only %d pairs fit", fitting)
	}
}

// checkInputs wants the tablet that a preference describes, although the VM names none.
func checkInputs(t *testing.T, what string, vmi *virtv1.VirtualMachineInstance, p *v1beta1.DevicePreferences) {
	t.Helper()
	inputs := vmi.Spec.Domain.Devices.Inputs
	if p.PreferredInputBus == "" {
		if len(inputs) > 0 {
			t.Errorf("%s: got inputs %v", what, inputs)
		}
		return
	}
	if len(inputs) != 1 || inputs[0].Bus != p.PreferredInputBus || inputs[0].Type != p.PreferredInputType {
		t.Errorf("%s: got inputs %v, want one on %s", what, inputs, p.PreferredInputBus)
	}
}

func fits(it *v1beta1.VirtualMachineInstancetypeSpec, required *v1beta1.PreferenceRequirements) bool {
	if required == nil || required.CPU == nil {
		return true
	}
	return it.CPU.Guest >= required.CPU.Guest && it.Memory.Guest.Cmp(required.Memory.Guest) >= 0
}
