package pod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/dedicated"
	"github.com/slipway-vm/slipway/internal/names"
)

// What an init container of a pod with processors of its own is held to. A pod is of the class
// Guaranteed, which has such processors, only when every container's limits are its requests;
// less than the compute container has of either, it costs the pod nothing.
const (
	initCPU    = "500m"
	initMemory = "64Mi"
)

// nodeLabels are those of the nodes on which vmi can run, for what its pod asks of them.
func nodeLabels(vmi *virtv1.VirtualMachineInstance) map[string]string {
	labels := map[string]string{}
	if dedicated.Asked(vmi) {
		labels[virtv1.DeprecatedCPUManager] = "true"
	}
	if dedicated.Realtime(vmi) {
		labels[virtv1.RealtimeLabel] = "true"
	}
	return labels
}

// guarantee gives the compute container of a VMI with dedicated processors whole ones, and no
// less than it may use.
func guarantee(vmi *virtv1.VirtualMachineInstance, resources corev1.ResourceRequirements) {
	if !dedicated.Asked(vmi) {
		return
	}
	cpus := *resource.NewQuantity(dedicated.CPUs(vmi, VCPUs(vmi)), resource.DecimalSI)
	resources.Requests[corev1.ResourceCPU], resources.Limits[corev1.ResourceCPU] = cpus, cpus
	resources.Limits[corev1.ResourceMemory] = resources.Requests[corev1.ResourceMemory]
}

// guaranteeInits does the same for the init containers.
func guaranteeInits(vmi *virtv1.VirtualMachineInstance, inits []corev1.Container) {
	if !dedicated.Asked(vmi) {
		return
	}
	for i := range inits {
		inits[i].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(initCPU), corev1.ResourceMemory: resource.MustParse(initMemory),
		}
		inits[i].Resources.Limits = maps.Clone(inits[i].Resources.Requests)
	}
}

// capabilities are those of the compute container. No process has them, since none is root; the
// profile RuntimeDefault allows the system calls that bind memory to NUMA nodes where SYS_NICE
// is on the list.
func capabilities(vmi *virtv1.VirtualMachineInstance) []corev1.Capability {
	list := []corev1.Capability{"NET_BIND_SERVICE"}
	if dedicated.Mapped(vmi) {
		list = append(list, "SYS_NICE")
	}
	return list
}

// pageSize is the size of the huge pages that the guest's memory is in, as the API writes it:
// 2Mi or 1Gi; empty for none.
func pageSize(vmi *virtv1.VirtualMachineInstance) string {
	memory := vmi.Spec.Domain.Memory
	if memory == nil || memory.Hugepages == nil {
		return ""
	}
	return memory.Hugepages.PageSize
}

// inHugepages takes the guest's memory out of the container's, and asks for it in huge pages.
// What is left is the overhead, and what the VMI requests beyond its guest's memory.
func inHugepages(vmi *virtv1.VirtualMachineInstance, overhead resource.Quantity, resources corev1.ResourceRequirements) {
	size := pageSize(vmi)
	if size == "" {
		return
	}
	guest := guestMemory(vmi)
	for _, list := range []corev1.ResourceList{resources.Requests, resources.Limits} {
		if memory, ok := list[corev1.ResourceMemory]; ok {
			left := memory.DeepCopy()
			left.Sub(guest)
			if left.Cmp(overhead) < 0 {
				left = overhead.DeepCopy()
			}
			list[corev1.ResourceMemory] = left
		}
		list[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size)] = guest
	}
}

// hugepageVolumes and hugepageMounts are the huge pages in a pod, as files.
func hugepageVolumes(vmi *virtv1.VirtualMachineInstance) []corev1.Volume {
	if pageSize(vmi) == "" {
		return nil
	}
	return []corev1.Volume{{Name: names.VolumeHugepages, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumHugePages},
	}}}
}

func hugepageMounts(vmi *virtv1.VirtualMachineInstance) []corev1.VolumeMount {
	if pageSize(vmi) == "" {
		return nil
	}
	return []corev1.VolumeMount{{Name: names.VolumeHugepages, MountPath: names.LauncherHugepagesDir}}
}
