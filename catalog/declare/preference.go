package declare

import (
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"kubevirt.io/api/instancetype/v1beta1"
)

// home is where users of a preference are sent.
const home = "https://github.com/slipway-vm/slipway"

// guest declares one preference.
type guest struct {
	name    string
	display string
	icon    string // without the prefix that all icons have
	tags    string // further than those that all have
	wishes  wish
}

// family are guests that belong together, in one file.
type family struct {
	name   string
	guests []guest
}

// preference is what wishes are put into.
type preference struct {
	os     string
	tags   string // appended
	labels map[string]string
	memory string // required, in the words of the declaration
	spec   v1beta1.VirtualMachinePreferenceSpec
}

// wish is one thing, or several, that a guest likes or needs.
type wish func(*preference)

// all is every one of wishes.
func all(wishes ...wish) wish {
	return func(p *preference) {
		for _, w := range wishes {
			w(p)
		}
	}
}

// needs are the CPUs and the memory without which the guest does not run.
func needs(cpus uint32, memory string) wish {
	return func(p *preference) {
		r := p.requirements()
		r.CPU = &v1beta1.CPUPreferenceRequirement{Guest: cpus}
		p.memory = memory
		p.labels[domain+"required-cpu"] = strconv.FormatUint(uint64(cpus), 10)
		p.labels[domain+"required-memory"] = memory
	}
}

func (p *preference) requirements() *v1beta1.PreferenceRequirements {
	if p.spec.Requirements == nil {
		p.spec.Requirements = &v1beta1.PreferenceRequirements{}
	}
	return p.spec.Requirements
}

func (p *preference) devices() *v1beta1.DevicePreferences {
	if p.spec.Devices == nil {
		p.spec.Devices = &v1beta1.DevicePreferences{}
	}
	return p.spec.Devices
}

// Preferences returns the YAML files of the preferences, one for each family, by name.
func Preferences() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, f := range families() {
		var objects []object
		for _, g := range f.guests {
			o, err := g.object()
			if err != nil {
				return nil, fmt.Errorf("declaring preference %s: %w", g.name, err)
			}
			objects = append(objects, o)
		}
		content, err := file(objects)
		if err != nil {
			return nil, fmt.Errorf("declaring preferences of family %s: %w", f.name, err)
		}
		files[f.name+".yaml"] = content
	}
	return files, nil
}

// made is the preference with all of the guest's wishes.
func (g guest) made() (*preference, error) {
	p := &preference{labels: map[string]string{labelVendor: vendor, labelSetVersion: Version}}
	g.wishes(p)
	p.labels[domain+"os-type"] = p.os
	p.spec.Annotations = merged(p.spec.Annotations, "vm.kubevirt.io/os", p.os)
	if p.memory == "" {
		return p, nil
	}
	quantity, err := resource.ParseQuantity(p.memory)
	if err != nil {
		return nil, fmt.Errorf("the memory that it requires: %w", err)
	}
	p.requirements().Memory = &v1beta1.MemoryPreferenceRequirement{Guest: quantity}
	return p, nil
}

func merged(base map[string]string, key, value string) map[string]string {
	result := map[string]string{key: value}
	maps.Copy(result, base)
	return result
}

func (g guest) object() (object, error) {
	p, err := g.made()
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{
		"iconClass": "icon-" + g.icon, "tags": "hidden,kubevirt," + g.tags + p.tags,
		"openshift.io/display-name": g.display, "openshift.io/provider-display-name": "KubeVirt",
		"openshift.io/documentation-url": home, "openshift.io/support-url": home + "/issues",
	}
	made, err := newObject(kindPreference, g.name, p.labels, annotations, p.spec)
	if err != nil || p.memory == "" {
		return made, err
	}
	// As it is declared: the API's type would turn 1.5Gi into 1536Mi.
	if err := unstructured.SetNestedField(made, p.memory, "spec", "requirements", "memory", "guest"); err != nil {
		return nil, fmt.Errorf("setting the memory that it requires: %w", err)
	}
	return made, nil
}
