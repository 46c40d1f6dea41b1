package metrics

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/eviction"
	"github.com/slipway-vm/slipway/controllers/kubevirtconfig"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/names"
)

var (
	vmiInfo = metric.Metric{
		Name: "kubevirt_vmi_info", Kind: metric.Gauge, Help: "What a VMI is, how and where; always 1.",
		Labels: []string{
			"node", "namespace", "name", "phase", "os", "workload", "flavor", "instance_type", "preference",
			"guest_os_kernel_release", "guest_os_machine", "guest_os_arch", "guest_os_name", "guest_os_version_id",
			"evictable", "outdated", "vmi_pod",
		},
	}
	vmiNonEvictable = metric.Metric{
		Name: "kubevirt_vmi_non_evictable", Kind: metric.Gauge,
		Help:   "1 when a VMI asks to be moved to another node instead of being stopped, and cannot be.",
		Labels: []string{"node", "namespace", "name"},
	}
	vmiAddress = metric.Metric{
		Name: "kubevirt_vmi_status_addresses", Kind: metric.Gauge,
		Help:   "An address of a VMI: always 1. An interface without one has `type` `SystemInterface`.",
		Labels: []string{"node", "namespace", "name", "vnic_name", "interface_name", "address", "type"},
	}
	vmiNIC = metric.Metric{
		Name: "kubevirt_vmi_vnic_info", Kind: metric.Gauge, Help: "An interface of a VMI, with its network, model and how it is bound; always 1.",
		Labels: []string{"name", "namespace", "vnic_name", "binding_type", "network", "binding_name", "model"},
	}
	vmiOverhead = metric.Metric{
		Name: "kubevirt_vmi_launcher_memory_overhead_bytes", Kind: metric.Gauge,
		Help:   "Memory that a launcher pod requests beyond its guest's own: for QEMU, libvirt and the launcher.",
		Labels: []string{"namespace", "name"},
	}
	vmiMetrics = []metric.Metric{vmiInfo, vmiNonEvictable, vmiAddress, vmiNIC, vmiOverhead}
)

func (w *world) tellVMI(tell teller, vmi *virtv1.VirtualMachineInstance) {
	node, launcher := vmi.Status.NodeName, w.pods[string(vmi.UID)]
	podName := ""
	if launcher != nil {
		podName = launcher.Name
		overhead := pod.MemoryOverhead(vmi, asksForKVM(launcher), w.overheadRatio())
		tell(vmiOverhead, float64(overhead.Value()), vmi.Namespace, vmi.Name)
	}
	_, outdated := vmi.Labels[virtv1.OutdatedLauncherImageLabel]
	k := kindOf(vmi)
	tell(vmiInfo, 1, node, vmi.Namespace, vmi.Name, k.phase, k.os, k.workload, k.flavor, k.instancetype, k.preference,
		k.kernel, k.machine, k.arch, k.system, k.version, strconv.FormatBool(w.evictable(vmi)), strconv.FormatBool(outdated), podName)
	stuck := float64(1)
	if w.evictable(vmi) {
		stuck = 0
	}
	tell(vmiNonEvictable, stuck, node, vmi.Namespace, vmi.Name)
	tellAddresses(tell, vmi)
	for _, nic := range interfacesOf(&vmi.Spec) {
		tell(vmiNIC, 1, vmi.Name, vmi.Namespace, nic.name, nic.bindingType, nic.network, nic.binding, nic.model)
	}
}

// overheadRatio is what the KubeVirt object says of launchers' memory.
func (w *world) overheadRatio() float64 {
	if len(w.kubevirts) == 0 {
		return 1
	}
	return kubevirtconfig.OverheadRatio(&w.kubevirts[0])
}

// kind is what VMIs are counted by.
type kind struct {
	node, phase, os, workload, flavor, instancetype, preference string
	kernel, machine, arch, system, version                      string
}

func kindOf(vmi *virtv1.VirtualMachineInstance) kind {
	os, workload, flavor := systemOf(vmi.Annotations)
	guest := vmi.Status.GuestOSInfo
	out := kind{
		node: vmi.Status.NodeName, phase: strings.ToLower(string(vmi.Status.Phase)), os: os, workload: workload, flavor: flavor,
		instancetype: cmp.Or(vmi.Annotations[virtv1.InstancetypeAnnotation], vmi.Annotations[virtv1.ClusterInstancetypeAnnotation]),
		preference:   cmp.Or(vmi.Annotations[virtv1.PreferenceAnnotation], vmi.Annotations[virtv1.ClusterPreferenceAnnotation]),
		kernel:       guest.KernelRelease, arch: guest.Machine, system: guest.Name, version: guest.VersionID,
	}
	if vmi.Status.Machine != nil {
		out.machine = vmi.Status.Machine.Type
	}
	return out
}

// evictable says whether an eviction leads somewhere: one that asks for a migration does so
// only when the VMI can migrate. What a VMI does not say the KubeVirt object does.
func (w *world) evictable(vmi *virtv1.VirtualMachineInstance) bool {
	if eviction.Of(vmi, w.kubevirts) != virtv1.EvictionStrategyLiveMigrate {
		return true
	}
	return slices.ContainsFunc(vmi.Status.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool {
		return c.Type == virtv1.VirtualMachineInstanceIsMigratable && c.Status == corev1.ConditionTrue
	})
}

func asksForKVM(launcher *corev1.Pod) bool {
	return slices.ContainsFunc(launcher.Spec.Containers, func(c corev1.Container) bool {
		kvm := c.Resources.Requests[names.DeviceKVM]
		return !kvm.IsZero()
	})
}

func tellAddresses(tell teller, vmi *virtv1.VirtualMachineInstance) {
	seen := map[[3]string]bool{}
	for _, nic := range vmi.Status.Interfaces {
		id := [3]string{nic.Name, nic.InterfaceName, nic.IP}
		if id == [3]string{} || seen[id] {
			continue
		}
		seen[id] = true
		kind := "ExternalInterface"
		if nic.IP == "" {
			kind = "SystemInterface"
		}
		tell(vmiAddress, 1, vmi.Status.NodeName, vmi.Namespace, vmi.Name, nic.Name, nic.InterfaceName, nic.IP, kind)
	}
}

// nic is an interface with its network.
type nic struct{ name, bindingType, binding, network, model string }

func interfacesOf(spec *virtv1.VirtualMachineInstanceSpec) []nic {
	networks := map[string]string{}
	for _, network := range spec.Networks {
		switch {
		case network.Pod != nil:
			networks[network.Name] = "pod networking"
		case network.Multus != nil:
			networks[network.Name] = network.Multus.NetworkName
		}
	}
	var out []nic
	for _, one := range spec.Domain.Devices.Interfaces {
		network, known := networks[one.Name]
		if !known {
			continue
		}
		found := nic{name: one.Name, network: network, bindingType: "core", model: cmp.Or(one.Model, "<none>")}
		switch {
		case one.Binding != nil:
			found.bindingType, found.binding = "plugin", one.Binding.Name
		case one.Masquerade != nil:
			found.binding = "masquerade"
		case one.Bridge != nil:
			found.binding = "bridge"
		case one.SRIOV != nil:
			found.binding = "sriov"
		}
		out = append(out, found)
	}
	return out
}
