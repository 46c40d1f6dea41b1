package virtualmachineinstance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

func TestSettingsOf(t *testing.T) {
	plain := settingsOf(&virtv1.KubeVirt{})
	if plain.useEmulation || plain.cpuRatio != 10 || plain.memoryOvercommit != 100 || plain.pullPolicy != corev1.PullIfNotPresent {
		t.Errorf("defaults are %+v", plain)
	}
	kv := &virtv1.KubeVirt{}
	kv.Spec.Configuration.ImagePullPolicy = corev1.PullAlways
	kv.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{UseEmulation: true, CPUAllocationRatio: 4, MemoryOvercommit: 150}
	want := settings{useEmulation: true, cpuRatio: 4, memoryOvercommit: 150, pullPolicy: corev1.PullAlways}
	if got := settingsOf(kv); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// While virt-handler restarts the kubelet has nothing allocatable; the node has KVM all the same.
func TestANodeWhoseHandlerRestartsStillOffersKVM(t *testing.T) {
	node := &corev1.Node{}
	if offersKVM(node) {
		t.Error("a node without KVM offers it")
	}
	node.Status.Capacity = corev1.ResourceList{names.DeviceKVM: resource.MustParse("1000")}
	node.Status.Allocatable = corev1.ResourceList{names.DeviceKVM: resource.MustParse("0")}
	if !offersKVM(node) {
		t.Error("a node whose KVM is not allocatable just now does not offer it")
	}
}
