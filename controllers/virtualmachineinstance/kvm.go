package virtualmachineinstance

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/controllers/kubevirtconfig"
	"github.com/slipway-vm/slipway/internal/names"
)

// settings are the parts of the KubeVirt object that pods are built by.
type settings struct {
	useEmulation     bool
	cpuRatio         int64
	memoryOvercommit int64
	pullPolicy       corev1.PullPolicy
	pullSecrets      []corev1.LocalObjectReference
	// stateClass is the StorageClass of what VMs keep beside their disks; empty when none is named.
	stateClass string
	// launcherVerbosity is how much launchers log; 0 when nothing is said.
	launcherVerbosity uint
	// overheadRatio is by what launchers' computed overhead of memory is multiplied.
	overheadRatio float64
	// limitedNamespaces selects the namespaces whose launchers are held to their virtual CPUs; nil for none.
	limitedNamespaces *metav1.LabelSelector
	// seccomp is the profile of launchers; nil for the runtime's.
	seccomp *corev1.SeccompProfile
	// runtimeClass is that of launchers; empty for the nodes' default.
	runtimeClass string
	// nodeSelectors are labels of the nodes of launchers.
	nodeSelectors map[string]string
	// attachmentResources are those of the containers that hold claims that came later.
	attachmentResources corev1.ResourceRequirements
	// imageVolumes says that the cluster has images as volumes of pods.
	imageVolumes bool
}

// defaultCPURatio is KubeVirt's cpuAllocationRatio where the object names none.
const defaultCPURatio = 10

func (r *Reconciler) readSettings(ctx context.Context) (settings, error) {
	list := &virtv1.KubeVirtList{}
	if err := r.List(ctx, list); err != nil {
		return settings{}, fmt.Errorf("reading the KubeVirt object: %w", err)
	}
	if len(list.Items) == 0 {
		return settingsOf(&virtv1.KubeVirt{}), nil
	}
	return settingsOf(&list.Items[0]), nil
}

func settingsOf(kv *virtv1.KubeVirt) settings {
	s := settings{cpuRatio: defaultCPURatio, memoryOvercommit: 100, pullPolicy: corev1.PullIfNotPresent, overheadRatio: kubevirtconfig.OverheadRatio(kv)}
	s.pullSecrets = kv.Spec.ImagePullSecrets
	s.imageVolumes = featuregate.On(kv, featuregate.ImageVolume)
	s.attachmentResources = kubevirtconfig.ContainerResources(kv, virtv1.HotplugAttachment)
	config := kv.Spec.Configuration
	s.stateClass = config.VMStateStorageClass
	s.limitedNamespaces = config.AutoCPULimitNamespaceLabelSelector
	s.runtimeClass = config.DefaultRuntimeClass
	s.seccomp = kubevirtconfig.LauncherSeccomp(kv)
	if config.ImagePullPolicy != "" {
		s.pullPolicy = config.ImagePullPolicy
	}
	if dev := config.DeveloperConfiguration; dev != nil {
		s.useEmulation, s.nodeSelectors = dev.UseEmulation, dev.NodeSelectors
		if dev.CPUAllocationRatio > 0 {
			s.cpuRatio = int64(dev.CPUAllocationRatio)
		}
		if dev.MemoryOvercommit > 0 {
			s.memoryOvercommit = int64(dev.MemoryOvercommit)
		}
		if dev.LogVerbosity != nil {
			s.launcherVerbosity = dev.LogVerbosity.VirtLauncher
		}
	}
	return s
}

// useKVM decides whether a new launcher pod asks for KVM: where any node offers it, and
// where emulation is not allowed, in which case the pod waits for a node that does.
func (r *Reconciler) useKVM(ctx context.Context, s settings) (bool, error) {
	if !s.useEmulation {
		return true, nil
	}
	return r.kvmOffered(ctx)
}

// kvmOffered says whether a node has KVM. Capacity counts, not what is allocatable: the
// kubelet takes the latter to zero while virt-handler restarts, and a VM must not fall
// to emulation for that.
func (r *Reconciler) kvmOffered(ctx context.Context) (bool, error) {
	nodes := &corev1.NodeList{}
	if err := r.List(ctx, nodes, client.MatchingLabels{virtv1.NodeSchedulable: "true"}); err != nil {
		return false, fmt.Errorf("listing the nodes with KVM: %w", err)
	}
	for i := range nodes.Items {
		if offersKVM(&nodes.Items[i]) {
			return true, nil
		}
	}
	return false, nil
}

func offersKVM(node *corev1.Node) bool {
	kvm := node.Status.Capacity[names.DeviceKVM]
	return !kvm.IsZero()
}

// limitsCPU decides whether a new launcher pod in the namespace is held to its virtual CPUs.
func (r *Reconciler) limitsCPU(ctx context.Context, s settings, namespace string) (bool, error) {
	if s.limitedNamespaces == nil {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s.limitedNamespaces)
	if err != nil {
		return false, fmt.Errorf("reading spec.configuration.autoCPULimitNamespaceLabelSelector of the KubeVirt object: %w", err)
	}
	ns := &corev1.Namespace{}
	if err := r.live.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return false, fmt.Errorf("reading the labels of namespace %s: %w", namespace, err)
	}
	return selector.Matches(labels.Set(ns.Labels)), nil
}

// useVhostNet decides whether a new launcher pod may ask for /dev/vhost-net: where every node with
// KVM that the selectors of the cluster and the VMI leave has it. It only makes the network faster, so it keeps no
// pod from a node; without it libvirt has QEMU itself carry the packets.
func (r *Reconciler) useVhostNet(ctx context.Context, s settings, vmi *virtv1.VirtualMachineInstance) (bool, error) {
	wanted := client.MatchingLabels{}
	maps.Copy(wanted, s.nodeSelectors)
	maps.Copy(wanted, vmi.Spec.NodeSelector)
	wanted[virtv1.NodeSchedulable] = "true"
	nodes := &corev1.NodeList{}
	if err := r.List(ctx, nodes, wanted); err != nil {
		return false, fmt.Errorf("listing the nodes with /dev/vhost-net: %w", err)
	}
	return allOfferVhostNet(nodes.Items), nil
}

// allOfferVhostNet says whether each of the nodes that has KVM has /dev/vhost-net, and there is one.
func allOfferVhostNet(nodes []corev1.Node) bool {
	offered := false
	for i := range nodes {
		if !offersKVM(&nodes[i]) {
			continue
		}
		if vhost := nodes[i].Status.Capacity[names.DeviceVhostNet]; vhost.IsZero() {
			return false
		}
		offered = true
	}
	return offered
}

func wantsKVM(pod *corev1.Pod) bool { return wants(pod, names.DeviceKVM) }

// wants says whether pod asks for the device.
func wants(pod *corev1.Pod, device corev1.ResourceName) bool {
	for _, c := range pod.Spec.Containers {
		if count, ok := c.Resources.Requests[device]; ok && !count.IsZero() {
			return true
		}
	}
	return false
}

// explainKVM is what to add to the scheduler's message when a pod asks for KVM in vain.
func (r *Reconciler) explainKVM(ctx context.Context) (string, error) {
	offered, err := r.kvmOffered(ctx)
	if err != nil || offered {
		return "", err
	}
	return ". No node has working KVM (" + names.DeviceKVM + "); to run without it, slowly, set " +
		"spec.configuration.developerConfiguration.useEmulation to true in the KubeVirt object", nil
}
