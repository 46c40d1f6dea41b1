package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// configured is a cluster with nothing in it but a KubeVirt object of this configuration, as YAML.
type configured string

func (configured) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	return empty{}.Get(ctx, key, obj, options...)
}

func (c configured) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	kubevirts, ok := list.(*virtv1.KubeVirtList)
	if !ok {
		return nil
	}
	kubevirts.Items = make([]virtv1.KubeVirt, 1)
	return yaml.UnmarshalStrict([]byte(c), &kubevirts.Items[0].Spec.Configuration)
}

const aCluster = configured("{machineType: pc-q35-9.2, cpuModel: Nehalem, cpuRequest: 300m}")

func TestANewVMIGetsWhatTheClusterGives(t *testing.T) {
	response := askWith(t, aCluster, "/virtualmachineinstances-mutate", []byte(`{metadata: {name: x}, spec: {domain: {devices: {}, memory: {guest: 1Gi}}}}`), nil, "jane")
	if !response.Allowed {
		t.Fatalf("refused: %v", response.Result)
	}
	patch, err := json.Marshal(response.Patches)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"type":"pc-q35-9.2"}`, `"model":"Nehalem"`, `{"requests":{"cpu":"300m"}}`} {
		if !strings.Contains(string(patch), want) {
			t.Errorf("%s lacks %s", patch, want)
		}
	}
}

// A VM keeps the machine type that the cluster names when it is made; what it says itself, or a preference may, comes first.
func TestANewVMKeepsItsMachine(t *testing.T) {
	for name, c := range map[string]struct {
		cluster          configured
		old, replacement string
		want             bool
	}{
		"the cluster names one":  {cluster: aCluster, want: true},
		"the cluster names none": {cluster: "{}"},
		"the VM names one":       {aCluster, "memory:", "machine: {type: q35}\n        memory:", false},
		"a preference may":       {aCluster, "spec:\n", "spec:\n  preference: {name: linux}\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			response := askWith(t, c.cluster, "/virtualmachines-mutate", []byte(strings.Replace(base, c.old, c.replacement, 1)), nil, "jane")
			patch, err := json.Marshal(response.Patches)
			if err != nil || !response.Allowed {
				t.Fatalf("refused: %v, %v", response.Result, err)
			}
			if got := strings.Contains(string(patch), "pc-q35-9.2"); got != c.want {
				t.Errorf("got %s", patch)
			}
		})
	}
}

func TestMachinesThatTheClusterDoesNotAllow(t *testing.T) {
	const instance = `{metadata: {name: x}, spec: {domain: {devices: {}, machine: {type: pc-q35-8.2}, memory: {guest: 1Gi}}}}`
	machine := strings.Replace(base, "memory:", "machine: {type: pc-q35-8.2}\n        memory:", 1)
	set := "{spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {domain: {devices: {}, machine: {type: pc-q35-8.2}, memory: {guest: 1Gi}}}}}}"
	for name, c := range map[string]struct{ path, object, at string }{
		"of a VMI":         {"/virtualmachineinstances-validate", instance, "spec."},
		"of a VM":          {"/virtualmachines-validate", machine, "spec.template.spec."},
		"of a replica set": {"/virtualmachineinstancereplicasets-validate", set, "spec.template.spec."},
	} {
		t.Run(name, func(t *testing.T) {
			if response := askWith(t, configured("{}"), c.path, []byte(c.object), nil, "jane"); !response.Allowed {
				t.Fatalf("refused where nothing is said: %v", response.Result)
			}
			response := askWith(t, configured("{emulatedMachines: ['q35*', pc-q35-9*]}"), c.path, []byte(c.object), nil, "jane")
			if response.Allowed {
				t.Fatal("allowed")
			}
			want := c.at + `domain.machine.type is not supported: pc-q35-8.2 (allowed values: [q35* pc-q35-9*])`
			if !strings.Contains(response.Result.Message, want) {
				t.Errorf("got %s, want %s", response.Result.Message, want)
			}
		})
	}
}

func TestBridgesThatTheClusterDoesNotAllow(t *testing.T) {
	const spec = "{domain: {devices: {interfaces: [{name: default, BINDING: {}}]}, machine: {type: q35}, memory: {guest: 1Gi}}, networks: [{name: default, pod: {}}]}"
	for name, c := range map[string]struct{ path, object, at string }{
		"of a VMI":         {"/virtualmachineinstances-validate", "{metadata: {name: x}, spec: " + spec + "}", "spec."},
		"of a VM":          {"/virtualmachines-validate", "{metadata: {name: x}, spec: {runStrategy: Always, template: {spec: " + spec + "}}}", "spec.template.spec."},
		"of a replica set": {"/virtualmachineinstancereplicasets-validate", "{spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + spec + "}}}", "spec.template.spec."},
		"of a pool":        {"/virtualmachinepools-validate", "{spec: {selector: {matchLabels: {a: b}}, virtualMachineTemplate: {metadata: {labels: {a: b}}, spec: {runStrategy: Always, template: {metadata: {labels: {a: b}}, spec: " + spec + "}}}}}", "spec.virtualMachineTemplate.spec.template.spec."},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(cluster configured, binding string) (bool, string) {
				response := askWith(t, cluster, c.path, []byte(strings.Replace(c.object, "BINDING", binding, 1)), nil, "jane")
				return response.Allowed, fmt.Sprint(response.Result)
			}
			for _, cluster := range []configured{"{}", "{network: {defaultNetworkInterface: masquerade}}", "{network: {permitBridgeInterfaceOnPodNetwork: true}}"} {
				if allowed, said := ask(cluster, "bridge"); !allowed {
					t.Errorf("refused with %s: %s", cluster, said)
				}
			}
			const closed = configured("{network: {permitBridgeInterfaceOnPodNetwork: false}}")
			if allowed, said := ask(closed, "masquerade"); !allowed {
				t.Errorf("masquerade is refused: %s", said)
			}
			want := c.at + `domain.devices.interfaces[0].name: Invalid value: "default": Bridge on pod network configuration is not enabled under kubevirt-config`
			if allowed, said := ask(closed, "bridge"); allowed || !strings.Contains(said, want) {
				t.Errorf("got %s, want %s", said, want)
			}
		})
	}
}
