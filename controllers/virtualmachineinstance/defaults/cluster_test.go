package defaults

import (
	"reflect"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestWhatTheClusterGives(t *testing.T) {
	for name, c := range map[string]struct{ config, spec, want string }{
		"nothing is said": {
			config: "{}", spec: "{}",
			want: "{machine: {type: q35}, cpu: {sockets: 1, cores: 1, threads: 1}}",
		},
		"all is said": {
			config: "{machineType: pc-q35-9.2, cpuModel: Nehalem, cpuRequest: 1500m}", spec: "{}",
			want: "{machine: {type: pc-q35-9.2}, cpu: {model: Nehalem, sockets: 2, cores: 1, threads: 1}, resources: {requests: {cpu: 1500m}}}",
		},
		"the VMI says it": {
			config: "{machineType: pc-q35-9.2, cpuModel: Nehalem, cpuRequest: '2'}",
			spec:   "{machine: {type: q35}, cpu: {model: host-model, cores: 2}, resources: {requests: {cpu: 200m}}}",
			want:   "{machine: {type: q35}, cpu: {model: host-model, sockets: 1, cores: 2, threads: 1}, resources: {requests: {cpu: 200m}}}",
		},
		"a limit is a request": {
			config: "{cpuRequest: '2'}", spec: "{resources: {limits: {cpu: '3'}}}",
			want: "{machine: {type: q35}, cpu: {sockets: 3, cores: 1, threads: 1}, resources: {limits: {cpu: '3'}}}",
		},
		"processors of its own": {
			config: "{cpuRequest: '2'}", spec: "{cpu: {cores: 4, dedicatedCpuPlacement: true}}",
			want: "{machine: {type: q35}, cpu: {sockets: 1, cores: 4, threads: 1, dedicatedCpuPlacement: true}}",
		},
		"the field's own request": {
			config: "{cpuRequest: 100m}", spec: "{cpu: {cores: 4}}",
			want: "{machine: {type: q35}, cpu: {sockets: 1, cores: 4, threads: 1}}",
		},
		"an architecture's machine": {
			config: "{architectureConfiguration: {amd64: {machineType: pc-q35-8.2}, arm64: {machineType: virt}}}", spec: "{}",
			want: "{machine: {type: pc-q35-8.2}, cpu: {sockets: 1, cores: 1, threads: 1}}",
		},
		"one without an architecture": {
			config: "{machineType: q35, architectureConfiguration: {amd64: {machineType: pc-q35-8.2}}}", spec: "{}",
			want: "{machine: {type: q35}, cpu: {sockets: 1, cores: 1, threads: 1}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := &virtv1.KubeVirtConfiguration{}
			if err := yaml.UnmarshalStrict([]byte(c.config), config); err != nil {
				t.Fatal(err)
			}
			vmi := &virtv1.VirtualMachineInstance{Spec: virtv1.VirtualMachineInstanceSpec{Domain: domain(t, c.spec)}}
			Set(vmi, Of(config))
			got, want := vmi.Spec.Domain, domain(t, c.want)
			if !reflect.DeepEqual(got.Machine, want.Machine) || !reflect.DeepEqual(got.CPU, want.CPU) ||
				!reflect.DeepEqual(text(t, got.Resources), text(t, want.Resources)) {
				t.Errorf("got\n%swant\n%s", text(t, got), text(t, want))
			}
		})
	}
}

func TestWhichMachinesAreAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		config, machine string
		want            bool
	}{
		"nothing is said":           {"{}", "pc-q35-9.2", true},
		"one that a pattern has":    {"{emulatedMachines: [q35, 'pc-q35-9*']}", "pc-q35-9.2", true},
		"one that none has":         {"{emulatedMachines: [q35, 'pc-q35-9*']}", "pc-q35-8.2", false},
		"an architecture's":         {"{architectureConfiguration: {amd64: {emulatedMachines: [q35]}}}", "pc-q35-8.2", false},
		"those without an arch":     {"{emulatedMachines: ['*'], architectureConfiguration: {amd64: {emulatedMachines: [q35]}}}", "pc-q35-8.2", true},
		"those of another arch":     {"{architectureConfiguration: {arm64: {emulatedMachines: ['virt*']}}}", "q35", true},
		"a pattern is the whole of": {"{emulatedMachines: [q35]}", "pc-q35-9.2", false},
	} {
		t.Run(name, func(t *testing.T) {
			config := &virtv1.KubeVirtConfiguration{}
			if err := yaml.UnmarshalStrict([]byte(c.config), config); err != nil {
				t.Fatal(err)
			}
			if got := Of(config).Allows(c.machine); got != c.want {
				t.Errorf("%s: got %t, want %t", c.machine, got, c.want)
			}
		})
	}
}

func text(t *testing.T, of any) string {
	t.Helper()
	said, err := yaml.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}
