package defaults

import (
	"cmp"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
)

// Cluster is what the cluster's KubeVirt object gives VMIs that do not say it themselves, and asks of all of them. Of one that
// says nothing, it is the zero value.
type Cluster struct {
	// Machine is the machine type; empty for the default.
	Machine string
	// Machines are patterns, as of file names, of which a machine type must match one; nil for all that there are.
	Machines []string
	// CPUModel is the model of the guest's processor; empty for the node's own.
	CPUModel string
	// CPURequest is how much CPU a VMI requests that names neither request nor limit and has no processors for itself; nil for
	// its share of its virtual CPUs.
	CPURequest *resource.Quantity
	// NoBridge says that no VMI may be on a bridge to the pod network.
	NoBridge bool
}

// unsaidCPURequest is the field's own default, by which virtual CPUs share processors as if nothing were said.
var unsaidCPURequest = resource.MustParse("100m")

// Of returns what config gives VMIs. What it says without naming an architecture comes before what it says of one.
func Of(config *virtv1.KubeVirtConfiguration) Cluster {
	cluster := Cluster{Machine: config.MachineType, Machines: config.EmulatedMachines, CPUModel: config.CPUModel}
	if request := config.CPURequest; request != nil && !request.Equal(unsaidCPURequest) {
		cluster.CPURequest = request
	}
	if network := config.NetworkConfiguration; network != nil {
		cluster.NoBridge = !ptr.Deref(network.PermitBridgeInterfaceOnPodNetwork, true)
	}
	if of := config.ArchitectureConfiguration; of != nil && of.Amd64 != nil {
		cluster.Machine = cmp.Or(cluster.Machine, of.Amd64.MachineType)
		if cluster.Machines == nil {
			cluster.Machines = of.Amd64.EmulatedMachines
		}
	}
	return cluster
}

// Allows says whether a VMI may have a machine of this type.
func (c Cluster) Allows(machine string) bool {
	return c.Machines == nil || slices.ContainsFunc(c.Machines, func(pattern string) bool {
		matches, err := path.Match(pattern, machine)
		return matches && err == nil
	})
}
