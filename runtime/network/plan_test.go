package network

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture"
)

// input is a golden test's case.
type input struct {
	VMI v1.VirtualMachineInstance `json:"vmi"`
	Pod Pod                       `json:"pod"`
}

func TestPlansMatchTheirGoldenFiles(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases in testdata: %v", err)
	}
	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".in.yaml"), func(t *testing.T) {
			in := readInput(t, path)
			plan, err := New(&in.VMI, in.Pod)
			if err != nil {
				t.Fatalf("planning: %v", err)
			}
			got, err := yaml.Marshal(plan)
			if err != nil {
				t.Fatalf("encoding: %v", err)
			}
			fixture.Golden(t, strings.TrimSuffix(path, ".in.yaml")+".out.yaml", got)
		})
	}
}

func TestWhatCannotBePlannedIsNamed(t *testing.T) {
	pod := Pod{Interface: "eth0", MTU: 1500, Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.7")}}
	for name, c := range map[string]struct {
		change func(*v1.VirtualMachineInstance)
		pod    Pod
		want   string
	}{
		"an interface without its network": {
			change: func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Networks = nil },
			pod:    pod, want: `interfaces[0]: no network is called "default"; add it to spec.networks`,
		},
		"a network that is not the pod's": {
			change: func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Networks[0].NetworkSource = v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "x"}}
			},
			pod: pod, want: "not the pod network",
		},
		"a binding that there is not": {
			change: func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}
			},
			pod: pod, want: "only the bindings masquerade and bridge",
		},
		"two bindings": {
			change: func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Domain.Devices.Interfaces[0].Bridge = &v1.InterfaceBridge{}
			},
			pod: pod, want: "keep one of them",
		},
		"a bridge in a pod without IPv4": {
			change: onBridge, want: "no IPv4 address",
			pod: Pod{Interface: "eth0", MAC: "0a:58:0a:f4:00:07", Addresses: []netip.Addr{netip.MustParseAddr("fd00:10:244::7")}},
		},
		"a bridge in a pod without an address": {change: onBridge, pod: Pod{Interface: "eth0"}, want: "no address yet"},
		"a bridge to what is no Ethernet": {
			change: onBridge, want: "no Ethernet device",
			pod: Pod{Interface: "eth0", Addresses: pod.Addresses, IPv4: netip.MustParsePrefix("10.244.0.7/24")},
		},
		"a bridge with a MAC address that is none": {
			change: func(vmi *v1.VirtualMachineInstance) {
				onBridge(vmi)
				vmi.Spec.Domain.Devices.Interfaces[0].MacAddress = "02:00"
			},
			pod:  Pod{Interface: "eth0", MAC: "0a:58:0a:f4:00:07", Addresses: pod.Addresses, IPv4: netip.MustParsePrefix("10.244.0.7/24")},
			want: `macAddress "02:00"`,
		},
		"a CIDR that is none": {
			change: func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Networks[0].Pod.VMNetworkCIDR = "10.0.2" },
			pod:    pod, want: "vmNetworkCIDR",
		},
		"a CIDR without room": {
			change: func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Networks[0].Pod.VMNetworkCIDR = "10.0.2.0/31" },
			pod:    pod, want: "no room",
		},
		"a MAC address that is none": {
			change: func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Devices.Interfaces[0].MacAddress = "02:00" },
			pod:    pod, want: `macAddress "02:00"`,
		},
		"a pod without an address": {
			change: func(*v1.VirtualMachineInstance) {}, pod: Pod{Interface: "eth0"}, want: "no address yet",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := readInput(t, "testdata/defaults.in.yaml")
			c.change(&in.VMI)
			_, err := New(&in.VMI, c.pod)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

func onBridge(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}
}

func TestAGuestKeepsItsDerivedMACWhenItsVMStartsAgain(t *testing.T) {
	first, second := readInput(t, "testdata/defaults.in.yaml").VMI, readInput(t, "testdata/defaults.in.yaml").VMI
	first.UID, second.UID = "one", "two"
	nic := first.Spec.Domain.Devices.Interfaces[0]
	a, errA := MAC(&first, nic)
	b, errB := MAC(&second, nic)
	if errA != nil || errB != nil || a.String() != b.String() {
		t.Errorf("got %v (%v) and %v (%v), want the same address", a, errA, b, errB)
	}
	if a[0]&0x03 != 0x02 {
		t.Errorf("%v is not a locally administered unicast address", a)
	}
}

func TestLongVMNamesBecomeHostNames(t *testing.T) {
	if got := dnsLabel(strings.Repeat("a", 62) + "-b.example"); got != strings.Repeat("a", 62) {
		t.Errorf("got %q", got)
	}
}

func readInput(t *testing.T, path string) input {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var in input
	if err := yaml.UnmarshalStrict(data, &in); err != nil {
		t.Fatalf("decoding %s: %v", path, err)
	}
	return in
}
