package create

import (
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"

	"github.com/slipway-vm/slipway/internal/flagparams"
)

const flagTopology = "cpu-topology"

// preference is what the flags say of a preference.
type preference struct {
	place
	storageClass, machine, topology string
}

func newPreferenceCommand(cluster Cluster) *cobra.Command {
	of := &preference{}
	command := &cobra.Command{
		Use:   "preference",
		Short: "Prints the manifest of a preference",
		Long: `Prints the manifest of a VirtualMachineClusterPreference, which every namespace can use. With --namespaced,
or with a namespace, it is a VirtualMachinePreference. Without --name it has a random one.`,
		Example: `  # For the whole cluster:
  virtctl create preference --name linux --machine-type q35 | kubectl create -f -

  # For one namespace; virtual CPUs are cores of one socket:
  virtctl create preference -n shop --name linux --cpu-topology cores

  # Disks that a VM brings are of this storage class:
  virtctl create preference --namespaced --volume-storage-class fast`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			of.namespace = cluster.GivenNamespace()
			object, err := of.object()
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), object)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	of.addFlags(flags, "preference")
	flags.StringVar(&of.storageClass, "volume-storage-class", "", "Storage class of the volumes that VMs bring with them.")
	flags.StringVar(&of.machine, "machine-type", "", "Machine type, such as q35.")
	flags.StringVar(&of.topology, flagTopology, "", "What the guest sees virtual CPUs as: sockets, cores, threads, spread or any.")
	return command
}

// object returns the VirtualMachinePreference or VirtualMachineClusterPreference.
func (o *preference) object() (any, error) {
	spec, err := o.spec()
	if err != nil {
		return nil, err
	}
	version := instancetypev1beta1.SchemeGroupVersion.String()
	if o.ofCluster() {
		return &instancetypev1beta1.VirtualMachineClusterPreference{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "VirtualMachineClusterPreference"},
			ObjectMeta: o.meta("clusterpreference-"), Spec: *spec,
		}, nil
	}
	return &instancetypev1beta1.VirtualMachinePreference{
		TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "VirtualMachinePreference"},
		ObjectMeta: o.meta("preference-"), Spec: *spec,
	}, nil
}

func (o *preference) spec() (*instancetypev1beta1.VirtualMachinePreferenceSpec, error) {
	spec := &instancetypev1beta1.VirtualMachinePreferenceSpec{}
	if o.storageClass != "" {
		spec.Volumes = &instancetypev1beta1.VolumePreferences{PreferredStorageClassName: o.storageClass}
	}
	if o.machine != "" {
		spec.Machine = &instancetypev1beta1.MachinePreferences{PreferredMachineType: o.machine}
	}
	if o.topology != "" {
		topology := instancetypev1beta1.PreferredCPUTopology(o.topology)
		if !slices.Contains(topologies(), topology) {
			return nil, flagparams.Errorf(flagTopology, "CPU topology must have a value of sockets, cores, threads, spread or any, not %q", o.topology)
		}
		spec.CPU = &instancetypev1beta1.CPUPreferences{PreferredCPUTopology: &topology}
	}
	return spec, nil
}

// topologies are those that the API knows, by their names of before, too.
func topologies() []instancetypev1beta1.PreferredCPUTopology {
	return []instancetypev1beta1.PreferredCPUTopology{
		instancetypev1beta1.Sockets, instancetypev1beta1.Cores, instancetypev1beta1.Threads, instancetypev1beta1.Spread, instancetypev1beta1.Any,
		instancetypev1beta1.DeprecatedPreferSockets, instancetypev1beta1.DeprecatedPreferCores, instancetypev1beta1.DeprecatedPreferThreads,
		instancetypev1beta1.DeprecatedPreferSpread, instancetypev1beta1.DeprecatedPreferAny,
	}
}
