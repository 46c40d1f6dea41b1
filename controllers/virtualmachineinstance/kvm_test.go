package virtualmachineinstance

import (
	"reflect"
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
	kv.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	kv.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{UseEmulation: true, NodeSelectors: map[string]string{"tier": "vms"}, CPUAllocationRatio: 4, MemoryOvercommit: 150, FeatureGates: []string{"ImageVolume"}}
	kv.Spec.Configuration.DefaultRuntimeClass = "kata"
	kv.Spec.Configuration.AdditionalGuestMemoryOverheadRatio = new("1.5")
	kv.Spec.Configuration.SupportContainerResources = []virtv1.SupportContainerResources{{Type: virtv1.HotplugAttachment, Resources: virtv1.ResourceRequirementsWithoutClaims{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
	}}}
	attachments := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("2M")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
	want := settings{attachmentResources: attachments, useEmulation: true, nodeSelectors: map[string]string{"tier": "vms"}, runtimeClass: "kata", cpuRatio: 4, memoryOvercommit: 150, pullPolicy: corev1.PullAlways, pullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}, imageVolumes: true, overheadRatio: 1.5}
	if got := settingsOf(kv); !reflect.DeepEqual(got, want) {
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

func TestAllOfferVhostNet(t *testing.T) {
	node := func(devices ...corev1.ResourceName) corev1.Node {
		n := corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{}}}
		for _, device := range devices {
			n.Status.Capacity[device] = resource.MustParse("1000")
		}
		return n
	}
	for name, c := range map[string]struct {
		nodes []corev1.Node
		want  bool
	}{
		"no node":                           {nil, false},
		"a node with both":                  {[]corev1.Node{node(names.DeviceKVM, names.DeviceVhostNet)}, true},
		"a node with KVM alone":             {[]corev1.Node{node(names.DeviceKVM, names.DeviceVhostNet), node(names.DeviceKVM)}, false},
		"a node without KVM takes no guest": {[]corev1.Node{node(), node(names.DeviceKVM, names.DeviceVhostNet)}, true},
		"no node has KVM":                   {[]corev1.Node{node(names.DeviceVhostNet)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := allOfferVhostNet(c.nodes); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}
