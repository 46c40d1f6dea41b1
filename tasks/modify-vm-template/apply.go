package modifyvmtemplate

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-vm/slipway/tasks/vmtemplate"
)

// Where things are in a VirtualMachine.
var (
	pathInstance    = []string{"spec", "template", "spec"}
	pathDomain      = below(pathInstance, "domain")
	pathDisks       = below(pathDomain, "devices", "disks")
	pathVolumes     = below(pathInstance, "volumes")
	pathDataVolumes = []string{"spec", "dataVolumeTemplates"}
)

func below(path []string, more ...string) []string { return slices.Concat(path, more) }

// apply changes the template, of either kind.
func (c *change) apply(template *unstructured.Unstructured) error {
	vm, err := vmtemplate.VirtualMachine(template)
	if err != nil {
		return err
	}
	parameters := []string{"parameters"}
	if template.GetKind() == vmtemplate.KindVirtualMachineTemplate {
		parameters = []string{"spec", "parameters"}
	}
	t := &tree{}
	t.merge(template.Object, c.templateLabels, "metadata", "labels")
	t.merge(template.Object, c.templateAnnotations, "metadata", "annotations")
	t.merge(vm, c.vmLabels, "metadata", "labels")
	t.merge(vm, c.vmAnnotations, "metadata", "annotations")
	c.size(t, vm)
	if c.deleteTemplateParams {
		t.remove(template.Object, parameters...)
	}
	if c.deleteDisks {
		t.remove(vm, pathDisks...)
	}
	if c.deleteVolumes {
		t.remove(vm, pathVolumes...)
	}
	if c.deleteDataVolumes {
		t.removeDataVolumes(vm)
	}
	t.put(template.Object, c.parameters, parameters, "name")
	t.put(vm, c.dataVolumes, pathDataVolumes, "metadata", "name")
	t.put(vm, c.disks, pathDisks, "name")
	t.put(vm, c.volumes, pathVolumes, "name")
	return errors.Join(t.errs...)
}

// size sets the VM's CPUs and memory.
func (c *change) size(t *tree, vm map[string]any) {
	for name, n := range map[string]int64{"sockets": c.sockets, "cores": c.cores, "threads": c.threads} {
		if n > 0 {
			t.set(vm, n, below(pathDomain, "cpu", name)...)
		}
	}
	if c.memory == "" {
		return
	}
	t.set(vm, c.memory, below(pathDomain, "resources", "requests", "memory")...)
	guest := below(pathDomain, "memory", "guest")
	if _, found, err := unstructured.NestedFieldNoCopy(vm, guest...); found && err == nil {
		t.set(vm, c.memory, guest...) // else the guest would keep what it has
	}
}

// tree collects what goes wrong while it changes trees.
type tree struct{ errs []error }

func (t *tree) failed(err error) {
	if err != nil {
		t.errs = append(t.errs, fmt.Errorf("the template is not of the form that it should have: %w", err))
	}
}

func (t *tree) set(object map[string]any, value any, path ...string) {
	t.failed(unstructured.SetNestedField(object, value, path...))
}

func (t *tree) remove(object map[string]any, path ...string) {
	unstructured.RemoveNestedField(object, path...)
}

func (t *tree) merge(object map[string]any, more map[string]string, path ...string) {
	if len(more) == 0 {
		return
	}
	values, _, err := unstructured.NestedMap(object, path...)
	t.failed(err)
	if values == nil {
		values = map[string]any{}
	}
	for _, key := range slices.Sorted(maps.Keys(more)) {
		values[key] = more[key]
	}
	t.set(object, values, path...)
}

// put adds the items to the list at path; one replaces what has its name, which is at namePath.
func (t *tree) put(object map[string]any, added []item, path []string, namePath ...string) {
	if len(added) == 0 {
		return
	}
	list, _, err := unstructured.NestedSlice(object, path...)
	t.failed(err)
	for _, add := range added {
		same := func(other any) bool {
			tree, ok := other.(map[string]any)
			return ok && nameAt(tree, namePath...) == add.name
		}
		if i := slices.IndexFunc(list, same); i >= 0 {
			list[i] = add.tree
		} else {
			list = append(list, add.tree)
		}
	}
	t.set(object, list, path...)
}

// removeDataVolumes removes the templates of DataVolumes with the volumes and disks that show them.
func (t *tree) removeDataVolumes(vm map[string]any) {
	templates, volumes := map[string]bool{}, map[string]bool{}
	t.filter(vm, pathDataVolumes, func(template map[string]any) bool {
		templates[nameAt(template, "metadata", "name")] = true
		return false
	})
	t.remove(vm, pathDataVolumes...)
	t.filter(vm, pathVolumes, func(volume map[string]any) bool {
		gone := templates[nameAt(volume, "dataVolume", "name")]
		if gone {
			volumes[nameAt(volume, "name")] = true
		}
		return !gone
	})
	t.filter(vm, pathDisks, func(disk map[string]any) bool { return !volumes[nameAt(disk, "name")] })
}

// filter keeps the items of the list at path that keep says.
func (t *tree) filter(object map[string]any, path []string, keep func(map[string]any) bool) {
	list, found, err := unstructured.NestedSlice(object, path...)
	t.failed(err)
	if !found {
		return
	}
	kept := []any{}
	for _, entry := range list {
		if tree, ok := entry.(map[string]any); !ok || keep(tree) {
			kept = append(kept, entry)
		}
	}
	t.set(object, kept, path...)
}
