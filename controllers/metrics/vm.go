package metrics

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/metric"
)

var (
	vmInfo = metric.Metric{
		Name: "kubevirt_vm_info", Kind: metric.Gauge, Help: "What a VM is and how; always 1.",
		Labels: []string{"name", "namespace", "os", "workload", "flavor", "machine_type", "instance_type", "preference", "status", "status_group"},
	}
	vmCreated = metric.Metric{
		Name: "kubevirt_vm_create_date_timestamp_seconds", Kind: metric.Gauge, Help: "When a VM was created.",
		Labels: []string{"name", "namespace"},
	}
	vmRequests = metric.Metric{
		Name: "kubevirt_vm_resource_requests", Kind: metric.Gauge,
		Help:   "Processors and memory that a VM asks for; `source` says by what: `domain`, `guest`, `hugepages`, `requests` or `default`.",
		Labels: []string{"name", "namespace", "resource", "unit", "source"},
	}
	vmLimits = metric.Metric{
		Name: "kubevirt_vm_resource_limits", Kind: metric.Gauge, Help: "Limits of processors and memory that a VM sets.",
		Labels: []string{"name", "namespace", "resource", "unit"},
	}
	vmDisk = metric.Metric{
		Name: "kubevirt_vm_disk_allocated_size_bytes", Kind: metric.Gauge, Help: "Size of the claim behind a VM's disk: what it has, or asks for until it is bound.",
		Labels: []string{"name", "namespace", "persistentvolumeclaim", "volume_mode", "device"},
	}
	vmNIC = metric.Metric{
		Name: "kubevirt_vm_vnic_info", Kind: metric.Gauge, Help: "An interface of a VM, with its network and how it is bound; always 1.",
		Labels: []string{"name", "namespace", "vnic_name", "binding_type", "network", "binding_name"},
	}
	vmMetrics = []metric.Metric{vmInfo, vmCreated, vmRequests, vmLimits, vmDisk, vmNIC, vmLabels}
)

// groups of printable statuses, each with the metric of when a VM entered it.
var groups = []struct {
	name     string
	statuses []virtv1.VirtualMachinePrintableStatus
	since    metric.Metric
}{
	{"starting", []virtv1.VirtualMachinePrintableStatus{
		virtv1.VirtualMachineStatusProvisioning, virtv1.VirtualMachineStatusStarting, virtv1.VirtualMachineStatusWaitingForVolumeBinding,
	}, lastTransition("starting", "is being started")},
	{"running", []virtv1.VirtualMachinePrintableStatus{virtv1.VirtualMachineStatusRunning}, lastTransition("running", "runs")},
	{"migrating", []virtv1.VirtualMachinePrintableStatus{virtv1.VirtualMachineStatusMigrating}, lastTransition("migrating", "moves to another node")},
	{"non_running", []virtv1.VirtualMachinePrintableStatus{
		virtv1.VirtualMachineStatusStopped, virtv1.VirtualMachineStatusPaused, virtv1.VirtualMachineStatusStopping, virtv1.VirtualMachineStatusTerminating,
	}, lastTransition("non_running", "is stopped or paused")},
	{"error", []virtv1.VirtualMachinePrintableStatus{
		virtv1.VirtualMachineStatusCrashLoopBackOff, virtv1.VirtualMachineStatusUnknown, virtv1.VirtualMachineStatusUnschedulable,
		virtv1.VirtualMachineStatusErrImagePull, virtv1.VirtualMachineStatusImagePullBackOff, virtv1.VirtualMachineStatusPvcNotFound,
		virtv1.VirtualMachineStatusDataVolumeError,
	}, lastTransition("error", "is in trouble")},
}

const groupUnknown = "<unknown>"

func lastTransition(group, sentence string) metric.Metric {
	return metric.Metric{
		Name: "kubevirt_vm_" + group + "_status_last_transition_timestamp_seconds", Kind: metric.Counter,
		Help: "Since when a VM " + sentence + "; 0 while it does not.", Labels: []string{"name", "namespace"},
	}
}

func lastTransitions() []metric.Metric {
	var all []metric.Metric
	for _, group := range groups {
		all = append(all, group.since)
	}
	return all
}

// groupOf is the group of a status; a VM that has none yet is in none.
func groupOf(status virtv1.VirtualMachinePrintableStatus) string {
	for _, group := range groups {
		if slices.Contains(group.statuses, status) {
			return group.name
		}
	}
	return groupUnknown
}

func (w *world) tellVM(tell teller, vm *virtv1.VirtualMachine) {
	group := groupOf(vm.Status.PrintableStatus)
	for _, one := range groups {
		since := float64(0)
		if one.name == group {
			since = lastChange(vm)
		}
		tell(one.since, since, vm.Name, vm.Namespace)
	}
	tell(vmCreated, float64(vm.CreationTimestamp.Unix()), vm.Name, vm.Namespace)
	if labels := w.labels.labelsOf(vm); len(labels) > 0 {
		tell(vmLabels.With(labels), 1, vm.Name, vm.Namespace)
	}
	if vm.Spec.Template == nil {
		return
	}
	os, workload, flavor := systemOf(vm.Spec.Template.ObjectMeta.Annotations)
	machine := ""
	if vm.Spec.Template.Spec.Domain.Machine != nil {
		machine = vm.Spec.Template.Spec.Domain.Machine.Type
	}
	var instancetype, preference string
	if vm.Spec.Instancetype != nil {
		instancetype = vm.Spec.Instancetype.Name
	}
	if vm.Spec.Preference != nil {
		preference = vm.Spec.Preference.Name
	}
	tell(vmInfo, 1, vm.Name, vm.Namespace, os, workload, flavor, machine, instancetype, preference,
		strings.ToLower(string(vm.Status.PrintableStatus)), group)
	w.tellRequests(tell, vm)
	w.tellDisks(tell, vm)
	for _, nic := range interfacesOf(&vm.Spec.Template.Spec) {
		tell(vmNIC, 1, vm.Name, vm.Namespace, nic.name, nic.bindingType, nic.network, nic.binding)
	}
}

// lastChange is the last transition among the conditions that go with a VM's status.
func lastChange(vm *virtv1.VirtualMachine) float64 {
	last := vm.CreationTimestamp.Unix()
	for _, condition := range vm.Status.Conditions {
		switch condition.Type {
		case virtv1.VirtualMachineReady, virtv1.VirtualMachineFailure, virtv1.VirtualMachinePaused:
			last = max(last, condition.LastTransitionTime.Unix())
		}
	}
	return float64(last)
}

// systemOf reads what templates note of the guest's system.
func systemOf(annotations map[string]string) (os, workload, flavor string) {
	const prefix = "vm.kubevirt.io/"
	return annotations[prefix+"os"], annotations[prefix+"workload"], annotations[prefix+"flavor"]
}

func (w *world) tellDisks(tell teller, vm *virtv1.VirtualMachine) {
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		name := ""
		switch {
		case volume.PersistentVolumeClaim != nil:
			name = volume.PersistentVolumeClaim.ClaimName
		case volume.DataVolume != nil:
			name = volume.DataVolume.Name
		}
		claim := w.claims[client.ObjectKey{Namespace: vm.Namespace, Name: name}]
		if name == "" || claim == nil {
			continue
		}
		mode := corev1.PersistentVolumeFilesystem
		if claim.Spec.VolumeMode != nil {
			mode = *claim.Spec.VolumeMode
		}
		size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if has, bound := claim.Status.Capacity[corev1.ResourceStorage]; bound {
			size = has
		}
		tell(vmDisk, float64(size.Value()), vm.Name, vm.Namespace, name, string(mode), volume.Name)
	}
}
