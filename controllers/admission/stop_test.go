package admission

import (
	"slices"
	"strings"
	"testing"
)

// baseOfType is a VM whose instance type and preference are in no cluster of these tests.
var baseOfType = strings.NewReplacer(
	"  runStrategy: Always\n", "  runStrategy: Always\n  instancetype: {name: gone}\n  preference: {name: gone}\n",
	"        memory: {guest: 1Gi}\n", "",
).Replace(base)

// What a VM names may be deleted while it runs. It is stopped, started and labelled all the same; what is judged anew is a change of what it is.
func TestAVMOfADeletedInstanceTypeIsStopped(t *testing.T) {
	for name, c := range map[string]struct {
		old, replacement string
		want             []string
	}{
		"stopped":                    {"runStrategy: Always", "runStrategy: Halted", nil},
		"stopped in the old words":   {"runStrategy: Always", "running: false", nil},
		"labelled":                   {"namespace: prod", "namespace: prod, labels: {a: b}", nil},
		"both ways to run":           {"runStrategy: Always", "runStrategy: Always\n  running: true", []string{"spec.running"}},
		"no way to run":              {"  runStrategy: Always\n", "", []string{"spec.runStrategy"}},
		"volumes kept, or not":       {"namespace: prod", "namespace: prod, annotations: {slipway-vm.github.io/keep-volumes: 'maybe'}", []string{"metadata.annotations[slipway-vm.github.io/keep-volumes]"}},
		"stopped and changed":        {"runStrategy: Always\n", "runStrategy: Halted\n  updateVolumesStrategy: Replacement\n", []string{"spec.instancetype"}},
		"of another type":            {"instancetype: {name: gone}", "instancetype: {name: other}", []string{"spec.instancetype"}},
		"by a revision":              {"instancetype: {name: gone}", "instancetype: {name: gone, revisionName: x-gone-1}", []string{"spec.instancetype.revisionName"}},
		"of another preference only": {"  instancetype: {name: gone}\n  preference: {name: gone}", "  preference: {name: other}", []string{"spec.preference"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(baseOfType, c.old, c.replacement, 1)
			if text == baseOfType {
				t.Fatal("the case changes nothing")
			}
			response := ask(t, "/virtualmachines-validate", []byte(text), []byte(baseOfType), "jane")
			if got := refusedPaths(response); response.Allowed != (c.want == nil) || !slices.Equal(got, c.want) {
				t.Errorf("allowed %v, refused %v, want %v", response.Allowed, got, c.want)
			}
		})
	}
	if response := ask(t, "/virtualmachines-validate", []byte(baseOfType), nil, "jane"); response.Allowed {
		t.Error("a new VM of a type that there is not is admitted")
	}
}

// A revision is of one instance type; who names another one does not go on with that.
func TestARevisionGoesWithItsName(t *testing.T) {
	was := strings.Replace(baseOfType, "instancetype: {name: gone}", "instancetype: {name: gone, revisionName: x-gone-1}", 1)
	for name, c := range map[string]struct{ matcher, want string }{
		"another type of the same revision": {"{name: other, revisionName: x-gone-1}", "the Matcher Name has been updated without updating the RevisionName"},
		"another type, another revision":    {"{name: other, revisionName: x-other-1}", "ControllerRevision x-other-1, which holds what the VM has, not found"},
		"another type, no revision":         {"{name: other}", "VirtualMachineClusterInstancetype other not found"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(was, "{name: gone, revisionName: x-gone-1}", c.matcher, 1)
			response := ask(t, "/virtualmachines-validate", []byte(text), []byte(was), "jane")
			if response.Allowed || !strings.Contains(response.Result.Message, c.want) {
				t.Errorf("allowed %v: %+v, want %q", response.Allowed, response.Result, c.want)
			}
		})
	}
}

func TestAPoolOfADeletedInstanceTypeIsScaled(t *testing.T) {
	const template = "spec.virtualMachineTemplate.spec."
	was := strings.NewReplacer("      runStrategy: Always\n", "      runStrategy: Always\n      instancetype: {name: gone}\n", "            memory: {guest: 1Gi}\n", "").Replace(basePool)
	for name, c := range map[string]struct {
		old, replacement string
		want             []string
	}{
		"scaled":                  {"replicas: 3", "replicas: 5", nil},
		"its VMs stopped":         {"runStrategy: Always", "runStrategy: Halted", nil},
		"less than none":          {"replicas: 3", "replicas: -1", []string{"spec.replicas"}},
		"its VMs of another type": {"name: gone", "name: other", []string{template + "instancetype"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(was, c.old, c.replacement, 1)
			if text == was {
				t.Fatal("the case changes nothing")
			}
			response := ask(t, "/virtualmachinepools-validate", []byte(text), []byte(was), "jane")
			if got := refusedPaths(response); response.Allowed != (c.want == nil) || !slices.Equal(got, c.want) {
				t.Errorf("allowed %v, refused %v, want %v", response.Allowed, got, c.want)
			}
		})
	}
}
