package createvmfromtemplate

import (
	"maps"
	"strings"
	"testing"

	templatev1 "github.com/openshift/api/template/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"
)

func TestDescribe(t *testing.T) {
	vm := &virtv1.VirtualMachine{Spec: virtv1.VirtualMachineSpec{Template: &virtv1.VirtualMachineInstanceTemplateSpec{}}}
	vm.Labels = map[string]string{"app": "a", "vm.kubevirt.io/template": "common"}
	describe(vm, &templatev1.Template{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "t",
		Labels: map[string]string{
			"os.template.kubevirt.io/rhel8.9": "true", "os.template.kubevirt.io/rhel8.10": "true", "os.template.kubevirt.io/rhel9": "false",
			"workload.template.kubevirt.io/server": "true", "flavor.template.kubevirt.io/tiny": "true", "team": "x",
		},
		Annotations: map[string]string{"name.os.template.kubevirt.io/rhel8.10": "Red Hat 8.10", "name.os.template.kubevirt.io/rhel8.9": "older"},
	}})
	flags := map[string]string{"os.template.kubevirt.io/rhel8.10": "true", "workload.template.kubevirt.io/server": "true", "flavor.template.kubevirt.io/tiny": "true"}
	if got := vm.Spec.Template.ObjectMeta.Labels; !maps.Equal(got, flags) {
		t.Errorf("the instance has %v", got)
	}
	maps.Copy(flags, map[string]string{"app": "a", "vm.kubevirt.io/template": "t", "vm.kubevirt.io/template.namespace": "ns"})
	if !maps.Equal(vm.Labels, flags) {
		t.Errorf("the VM has %v", vm.Labels)
	}
	if want := map[string]string{"name.os.template.kubevirt.io/rhel8.10": "Red Hat 8.10"}; !maps.Equal(vm.Annotations, want) {
		t.Errorf("the VM has %v", vm.Annotations)
	}
}

func TestDescribeLeavesOutWhatNoLabelHolds(t *testing.T) {
	vm := &virtv1.VirtualMachine{Spec: virtv1.VirtualMachineSpec{Template: &virtv1.VirtualMachineInstanceTemplateSpec{}}}
	describe(vm, &templatev1.Template{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: strings.Repeat("t", 64)}})
	if want := map[string]string{"vm.kubevirt.io/template.namespace": "ns"}; !maps.Equal(vm.Labels, want) {
		t.Errorf("the VM has %v", vm.Labels)
	}
}

func TestNatural(t *testing.T) {
	for _, pair := range [][2]string{{"rhel8.9", "rhel8.10"}, {"win2k8", "win10k"}, {"a", "b"}, {"fedora9", "fedora31"}, {"a1", "a1b"}, {"", "a"}} {
		if natural(pair[0], pair[1]) >= 0 || natural(pair[1], pair[0]) <= 0 || natural(pair[0], pair[0]) != 0 {
			t.Errorf("%q and %q are in the wrong order", pair[0], pair[1])
		}
	}
}

func TestSplit(t *testing.T) {
	object := func(kind string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": map[string]any{"name": "x"}}}
	}
	vm, beside, err := split([]*unstructured.Unstructured{object("VirtualMachineInstanceReplicaSet"), object("VirtualMachine"), object("Secret")})
	if err != nil || vm.Name != "x" || len(beside) != 2 || beside[1].GetKind() != "Secret" {
		t.Errorf("got %v, %v, %v", vm, beside, err)
	}
	odd := object("VirtualMachine")
	odd.Object["spec"] = map[string]any{"colour": "red"}
	for want, objects := range map[string][]*unstructured.Unstructured{
		"no VM object found in the template": {object("Secret")},
		"more than one VirtualMachine":       {object("VirtualMachine"), object("VirtualMachine")},
		`unknown field "spec.colour"`:        {odd},
	} {
		if _, _, err := split(objects); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
