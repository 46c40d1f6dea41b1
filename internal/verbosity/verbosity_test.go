package verbosity

import (
	"testing"

	"github.com/go-logr/logr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func kubeVirt(levels *virtv1.LogVerbosity) *virtv1.KubeVirt {
	kv := &virtv1.KubeVirt{}
	kv.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{LogVerbosity: levels}
	return kv
}

func TestWhatKubeVirtSays(t *testing.T) {
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
			level := New(2)
			level.say(logr.Discard(), ofKubeVirt(c.kv, c.component))
			logs(t, level, c.want)
		})
	}
}

func TestWhatCDISays(t *testing.T) {
	for name, c := range map[string]struct {
		said *int32
		want int
	}{
		"nothing":            {nil, 2},
		"little":             {new(int32(0)), 0},
		"more":               {new(int32(5)), 5},
		"more than there is": {new(int32(100)), 9},
		"less than nothing":  {new(int32(-1)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			level := New(2)
			level.say(logr.Discard(), ofCDI(&cdiv1.CDIConfig{Spec: cdiv1.CDIConfigSpec{LogVerbosity: c.said}}))
			logs(t, level, c.want)
		})
	}
	if said := ofCDI(nil); said != nil {
		t.Errorf("got %d of no object", *said)
	}
}

// A logger, and those made of it, log as much as the object says last.
func TestALevelChangesWhileItIsUsed(t *testing.T) {
	level := New(1)
	logger := level.Logger().WithName("part").WithValues("a", 1)
	if logger.V(2).Enabled() || !logger.V(1).Enabled() {
		t.Error("the first level is not the flag's")
	}
	level.say(logger, new(6))
	if !logger.V(6).Enabled() || logger.V(7).Enabled() {
		t.Error("the level is not the object's")
	}
	level.say(logger, nil)
	if logger.V(2).Enabled() {
		t.Error("the level stays when the object has gone")
	}
}

// A part logs as much as all else while nothing is said of it.
func TestAPartHasItsOwnLevel(t *testing.T) {
	whole := New(1)
	part := whole.Part()
	logs(t, part, 1)
	whole.say(logr.Discard(), new(4))
	logs(t, part, 4)
	part.say(logr.Discard(), new(0))
	logs(t, part, 0)
	logs(t, whole, 4)
	whole.say(logr.Discard(), new(6))
	logs(t, part, 0)
	part.say(logr.Discard(), nil)
	logs(t, part, 6)
	whole.say(logr.Discard(), nil)
	logs(t, part, 1)
}

// logs says whether level is what is wanted.
func logs(t *testing.T, level *Level, want int) {
	t.Helper()
	if logger := level.Logger(); !logger.V(want).Enabled() || logger.V(want+1).Enabled() {
		t.Errorf("the level is %s, want %d", level.config.Verbosity(), want)
	}
}
