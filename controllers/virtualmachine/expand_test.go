package virtualmachine

import (
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
)

func TestWhichVMsAreExpanded(t *testing.T) {
	of := &virtv1.InstancetypeStatusRef{Name: "small"}
	revision := &virtv1.InstancetypeStatusRef{Name: "small", ControllerRevisionRef: &virtv1.ControllerRevisionRef{Name: "web-small-1"}}
	for name, c := range map[string]struct {
		policy  virtv1.InstancetypeReferencePolicy
		status  virtv1.VirtualMachineStatus
		matcher virtv1.InstancetypeMatcher
		want    bool
	}{
		"nothing is said":                 {},
		"by reference":                    {policy: virtv1.Reference},
		"a new VM":                        {policy: virtv1.Expand, want: true},
		"one whose type is known":         {policy: virtv1.Expand, status: virtv1.VirtualMachineStatus{InstancetypeRef: of}, want: true},
		"one with a kept instance type":   {policy: virtv1.Expand, status: virtv1.VirtualMachineStatus{InstancetypeRef: revision}},
		"one with a kept preference":      {policy: virtv1.Expand, status: virtv1.VirtualMachineStatus{PreferenceRef: revision}},
		"one that names a revision":       {policy: virtv1.Expand, matcher: virtv1.InstancetypeMatcher{RevisionName: "web-small-1"}},
		"all, also with a kept one":       {policy: virtv1.ExpandAll, status: virtv1.VirtualMachineStatus{PreferenceRef: revision}, want: true},
		"all, also with a named revision": {policy: virtv1.ExpandAll, matcher: virtv1.InstancetypeMatcher{RevisionName: "web-small-1"}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &virtv1.VirtualMachine{Status: c.status}
			vm.Spec.Instancetype = &c.matcher
			if got := expands(c.policy, vm); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}
