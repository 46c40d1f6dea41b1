package virtualmachinerestore

import (
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
)

// A new VM asks for revisions of its own of what the old one had; one that is patched to be of another type does not.
func TestANewVMHasRevisionsOfItsOwn(t *testing.T) {
	content := contentOf(func(vm *virtv1.VirtualMachine) { vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{Name: "small"} })
	content.Spec.Source.VirtualMachine.Status.InstancetypeRef = &virtv1.InstancetypeStatusRef{
		Name: "small", Kind: "VirtualMachineClusterInstancetype", ControllerRevisionRef: &virtv1.ControllerRevisionRef{Name: content.Name + "-small-v1beta1-1-2-3"},
	}
	for name, c := range map[string]struct {
		patches []string
		want    virtv1.InstancetypeMatcher
	}{
		"as it was":       {nil, virtv1.InstancetypeMatcher{Name: "small", RevisionName: "copy-small-v1beta1-1-2-3"}},
		"of another type": {[]string{`{"op":"replace","path":"/spec/instancetype/name","value":"large"}`}, virtv1.InstancetypeMatcher{Name: "large"}},
		"of a revision":   {[]string{`{"op":"replace","path":"/spec/instancetype/revisionName","value":"mine"}`}, virtv1.InstancetypeMatcher{Name: "small", RevisionName: "mine"}},
	} {
		t.Run(name, func(t *testing.T) {
			restore := restoreTo("copy")
			restore.Spec.Patches = c.patches
			vm, err := newMachine(restore, content, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := *vm.Spec.Instancetype; got != c.want {
				t.Errorf("its instance type is %+v, want %+v", got, c.want)
			}
		})
	}
}
