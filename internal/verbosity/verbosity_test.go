package verbosity

import (
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
)

func kubeVirt(levels *virtv1.LogVerbosity) *virtv1.KubeVirt {
	kv := &virtv1.KubeVirt{}
	kv.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{LogVerbosity: levels}
	return kv
}

func TestWanted(t *testing.T) {
	levels := &virtv1.LogVerbosity{VirtAPI: 3, VirtOperator: 400, VirtHandler: 5, NodeVerbosity: map[string]uint{"one": 7}}
	for name, c := range map[string]struct {
		kv        *virtv1.KubeVirt
		component Component
		want      int
	}{
		"there is none":            {nil, API, 2},
		"it configures nothing":    {&virtv1.KubeVirt{}, API, 2},
		"it says nothing of logs":  {kubeVirt(nil), API, 2},
		"the component's":          {kubeVirt(levels), API, 3},
		"of others only":           {kubeVirt(levels), Controller, 2},
		"more than there is":       {kubeVirt(levels), Operator, 9},
		"of all nodes":             {kubeVirt(levels), Handler("two"), 5},
		"of this node":             {kubeVirt(levels), Handler("one"), 7},
		"of another node, no more": {kubeVirt(&virtv1.LogVerbosity{NodeVerbosity: map[string]uint{"one": 7}}), Handler("two"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wanted(c.kv, c.component, 2); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// A logger, and those made of it, log as much as the object says last.
func TestALevelChangesWhileItIsUsed(t *testing.T) {
	level := New(1)
	logger := level.Logger().WithName("part").WithValues("a", 1)
	if logger.V(2).Enabled() || !logger.V(1).Enabled() {
		t.Error("the first level is not the flag's")
	}
	level.apply(logger, Controller, kubeVirt(&virtv1.LogVerbosity{VirtController: 6}))
	if !logger.V(6).Enabled() || logger.V(7).Enabled() {
		t.Error("the level is not the object's")
	}
	level.apply(logger, Controller, nil)
	if logger.V(2).Enabled() {
		t.Error("the level stays when the object has gone")
	}
}
