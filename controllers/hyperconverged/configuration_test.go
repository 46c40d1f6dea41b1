package hyperconverged

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

func TestWhatAllVMsAreGivenReachesKubeVirt(t *testing.T) {
	on := map[string]any{}
	for name, c := range map[string]struct {
		asked hcov1.Virtualization
		patch string
		field string
		want  any
	}{
		"no options": {field: "virtualMachineOptions"},
		"options that are off": {
			asked: hcov1.Virtualization{VirtualMachineOptions: &hcov1.VirtualMachineOptions{MachineSwitches: hcov1.MachineSwitches{DisableFreePageReporting: new(false)}}},
			field: "virtualMachineOptions",
		},
		"options that are on": {
			asked: hcov1.Virtualization{VirtualMachineOptions: &hcov1.VirtualMachineOptions{MachineSwitches: hcov1.MachineSwitches{DisableFreePageReporting: new(true), DisableSerialConsoleLog: new(true)}}},
			field: "virtualMachineOptions", want: map[string]any{"disableFreePageReporting": on, "disableSerialConsoleLog": on},
		},
		"an option by a patch": {
			patch: `[{"op":"add","path":"/spec/configuration/virtualMachineOptions","value":{"disableSerialConsoleLog":{}}}]`,
			field: "virtualMachineOptions", want: map[string]any{"disableSerialConsoleLog": on},
		},
		"namespaces with limits": {
			asked: hcov1.Virtualization{AutoCPULimitNamespaceLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"limit": "yes"}}},
			field: "autoCPULimitNamespaceLabelSelector", want: map[string]any{"matchLabels": map[string]any{"limit": "yes"}},
		},
		"a processor": {
			asked: hcov1.Virtualization{VirtualMachineOptions: &hcov1.VirtualMachineOptions{DefaultCPUModel: new("Nehalem")}},
			field: "cpuModel", want: "Nehalem",
		},
		"a class of pods": {
			asked: hcov1.Virtualization{VirtualMachineOptions: &hcov1.VirtualMachineOptions{DefaultRuntimeClass: new("kata")}},
			field: "defaultRuntimeClass", want: "kata",
		},
		"roles by hand": {
			asked: hcov1.Virtualization{RoleAggregationStrategy: new(virtv1.RoleAggregationStrategyManual)},
			field: "roleAggregationStrategy", want: "Manual",
		},
		"machines by a patch": {
			patch: `[{"op":"add","path":"/spec/configuration/architectureConfiguration","value":{"amd64":{"machineType":"pc-q35-9.2","emulatedMachines":["pc-q35*"]}}}]`,
			field: "architectureConfiguration", want: map[string]any{"amd64": map[string]any{"machineType": "pc-q35-9.2", "emulatedMachines": []any{"pc-q35*"}}},
		},
		"who made guests": {
			patch: `[{"op":"add","path":"/spec/configuration/smbios","value":{"family":"Example"}}]`,
			field: "smbios", want: map[string]any{"family": "Example"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			hco := &hcov1.HyperConverged{}
			hco.Name = "kubevirt-hyperconverged"
			hco.Spec.Virtualization = c.asked
			if c.patch != "" {
				hco.Annotations = map[string]string{hcov1.AnnotationKubeVirtPatch: c.patch}
			}
			objects, err := operands(hco, testOptions().Values())
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := unstructured.NestedFieldCopy(objects[0].Object, "spec", "configuration", c.field)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v (%v), want %v", got, err, c.want)
			}
		})
	}
}
