package graph

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture"
)

func machineOf(t *testing.T) *virtv1.VirtualMachine {
	t.Helper()
	data, err := os.ReadFile("testdata/machine.yaml")
	if err != nil {
		t.Fatal(err)
	}
	vm := &virtv1.VirtualMachine{}
	if err := yaml.UnmarshalStrict(data, vm); err != nil {
		t.Fatal(err)
	}
	return vm
}

func TestTheTreeNamesEveryObject(t *testing.T) {
	vm := machineOf(t)
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: vm.ObjectMeta, Spec: vm.Spec.Template.Spec}
	for name, root := range map[string]virtv1.ObjectGraphNode{
		"machine":  Machine(vm, true, "virt-launcher-web-1"),
		"instance": Instance(vmi, "virt-launcher-web-1"),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := yaml.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, "testdata/"+name+".golden.yaml", got)
		})
	}
}

func TestWhatIsNotThereHasNoNode(t *testing.T) {
	if got := names(Machine(&virtv1.VirtualMachine{}, false, "")); got != "" {
		t.Errorf("a machine without a template has %s", got)
	}
	vm := machineOf(t)
	vm.Status.InstancetypeRef = &virtv1.InstancetypeStatusRef{}
	vm.Spec.Instancetype.RevisionName = "asked-for"
	if got := names(Machine(vm, true, "")); !strings.HasPrefix(got, "VirtualMachineInstance/web VirtualMachineClusterInstancetype/small VirtualMachinePreference/linux ControllerRevision/linux-1 ") {
		t.Errorf("got %s", got)
	}
}

func TestFilter(t *testing.T) {
	root := Machine(machineOf(t), true, "virt-launcher-web-1")
	for name, c := range map[string]struct {
		optional bool
		selector string
		want     string
	}{
		"only storage, with what is below": {true, Label + "=storage", "DataVolume/web-root PersistentVolumeClaim/web-root PersistentVolumeClaim/data PersistentVolumeClaim/base PersistentVolumeClaim/dump"},
		"only networks":                    {true, Label + "=network", "ServiceAccount/teller NetworkAttachmentDefinition/near NetworkAttachmentDefinition/far"},
		"only networks that must be":       {false, Label + "=network", "ServiceAccount/teller"},
		"what runs":                        {true, Label + "=compute", "VirtualMachineInstance/web Pod/virt-launcher-web-1"},
		"nothing":                          {true, "a=b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(c.selector)
			if err != nil {
				t.Fatal(err)
			}
			if got := names(Filter(root, c.optional, selector)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	if all := names(Filter(root, true, labels.Everything())); all != names(root) {
		t.Errorf("without a filter there is %s", all)
	}
}

// names are the nodes below root, depth first.
func names(root virtv1.ObjectGraphNode) string {
	var all []string
	for _, child := range root.Children {
		all = append(all, fmt.Sprintf("%s/%s", child.ObjectReference.Kind, child.ObjectReference.Name))
		if below := names(child); below != "" {
			all = append(all, below)
		}
	}
	return strings.Join(all, " ")
}
