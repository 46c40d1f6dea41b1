package create

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"

	"github.com/slipway-vm/slipway/internal/flagparams"
)

// Names of the flags that are parsed here.
const (
	flagCPU        = "cpu"
	flagMemory     = "memory"
	flagIOThreads  = "iothreadspolicy"
	flagGPU        = "gpu"
	flagHostDevice = "hostdevice"
)

// instancetype is what the flags say of an instance type.
type instancetype struct {
	place
	cpu               uint32
	memory, ioThreads string
	gpus, hostDevices []string
}

func newInstancetypeCommand(cluster Cluster) *cobra.Command {
	of := &instancetype{}
	command := &cobra.Command{
		Use:   "instancetype",
		Short: "Prints the manifest of an instance type",
		Long: `Prints the manifest of a VirtualMachineClusterInstancetype, which every namespace can use. With --namespaced,
or with a namespace, it is a VirtualMachineInstancetype. Without --name it has a random one.`,
		Example: `  # For the whole cluster:
  virtctl create instancetype --name small --cpu 2 --memory 2Gi | kubectl create -f -

  # For one namespace:
  virtctl create instancetype -n shop --name small --cpu 2 --memory 2Gi

  # With a GPU and a device of the node:
  virtctl create instancetype --cpu 8 --memory 32Gi --iothreadspolicy auto \
    --gpu name:gpu1,devicename:nvidia.com/A100 --hostdevice name:nic1,devicename:intel.com/qat`,
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
	of.addFlags(flags, "instance type")
	flags.Uint32Var(&of.cpu, flagCPU, 0, "Number of virtual CPUs. Required.")
	flags.StringVar(&of.memory, flagMemory, "", "Memory of the guest, such as 2Gi. Required.")
	flags.StringVar(&of.ioThreads, flagIOThreads, "", "How threads serve the disks: auto or shared.")
	flags.StringArrayVar(&of.gpus, flagGPU, nil, "GPU of the node, by name and devicename. May be given several times.")
	flags.StringArrayVar(&of.hostDevices, flagHostDevice, nil, "Device of the node, by name and devicename. May be given several times.")
	_ = command.MarkFlagRequired(flagCPU)
	_ = command.MarkFlagRequired(flagMemory)
	return command
}

// object returns the VirtualMachineInstancetype or VirtualMachineClusterInstancetype.
func (o *instancetype) object() (any, error) {
	spec, err := o.spec()
	if err != nil {
		return nil, err
	}
	version := instancetypev1beta1.SchemeGroupVersion.String()
	if o.ofCluster() {
		return &instancetypev1beta1.VirtualMachineClusterInstancetype{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "VirtualMachineClusterInstancetype"},
			ObjectMeta: o.meta("clusterinstancetype-"), Spec: *spec,
		}, nil
	}
	return &instancetypev1beta1.VirtualMachineInstancetype{
		TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "VirtualMachineInstancetype"},
		ObjectMeta: o.meta("instancetype-"), Spec: *spec,
	}, nil
}

func (o *instancetype) spec() (*instancetypev1beta1.VirtualMachineInstancetypeSpec, error) {
	if o.cpu == 0 {
		return nil, flagparams.Errorf(flagCPU, "cpu value must be greater than zero")
	}
	memory, err := resource.ParseQuantity(o.memory)
	if err != nil {
		return nil, flagparams.Errorf(flagMemory, "%w; write for example 2Gi", err)
	}
	if memory.Sign() <= 0 {
		return nil, flagparams.Errorf(flagMemory, "%s is no memory; write for example 2Gi", o.memory)
	}
	spec := &instancetypev1beta1.VirtualMachineInstancetypeSpec{
		CPU:    instancetypev1beta1.CPUInstancetype{Guest: o.cpu},
		Memory: instancetypev1beta1.MemoryInstancetype{Guest: memory},
	}
	switch policy := virtv1.IOThreadsPolicy(o.ioThreads); policy {
	case "":
	case virtv1.IOThreadsPolicyAuto, virtv1.IOThreadsPolicyShared:
		spec.IOThreadsPolicy = &policy
	default:
		return nil, flagparams.Errorf(flagIOThreads, "IOThread must be of value auto or shared, not %q", o.ioThreads)
	}
	for _, text := range o.gpus {
		name, device, err := device(flagGPU, text)
		if err != nil {
			return nil, err
		}
		spec.GPUs = append(spec.GPUs, virtv1.GPU{Name: name, DeviceName: device})
	}
	for _, text := range o.hostDevices {
		name, device, err := device(flagHostDevice, text)
		if err != nil {
			return nil, err
		}
		spec.HostDevices = append(spec.HostDevices, virtv1.HostDevice{Name: name, DeviceName: device})
	}
	return spec, nil
}

// device reads the name in the guest's definition and that of the node's resource.
func device(flag, text string) (name, resource string, err error) {
	p, err := flagparams.Read(flag, text, "name", "devicename")
	if err != nil {
		return "", "", err
	}
	return p.Text("name"), p.Text("devicename"), p.Require("name", "devicename")
}
