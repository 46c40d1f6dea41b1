package create

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/internal/flagparams"
)

// Names of the flags that are parsed here.
const (
	flagSourceName = "source-name"
	flagSourceType = "source-type"
	flagTargetType = "target-type"
	flagNewMAC     = "new-mac-address"
)

// Words for a VM and for a snapshot of one.
var (
	machineWords  = []string{"vm", "VM", "VirtualMachine", "virtualmachine"}
	snapshotWords = []string{"vmsnapshot", "snapshot", "VirtualMachineSnapshot", "VMSnapshot"}
)

// clone is what the flags say of a clone.
type clone struct {
	name, namespace                     string
	sourceName, sourceType              string
	targetName, targetType              string
	labels, annotations                 []string
	templateLabels, templateAnnotations []string
	addresses                           []string
	serial                              string
}

func newCloneCommand(cluster Cluster) *cobra.Command {
	of := &clone{}
	command := &cobra.Command{
		Use:   "clone",
		Short: "Prints the manifest of a clone of a VirtualMachine",
		Long: `Prints the manifest of a VirtualMachineClone, which makes a second VirtualMachine of one that there is, or of a
snapshot of one. Without --name it has a random name; without --target-name the new VirtualMachine has.`,
		Example: `  # Clone a VM:
  virtctl create clone --source-name web --target-name web2 | kubectl create -f -

  # Make a VM of a snapshot:
  virtctl create clone --source-name golden --source-type vmsnapshot --target-name web2

  # Leave labels behind:
  virtctl create clone --source-name web --label-filter '*' --label-filter '!some/key'

  # With an address and a serial number of its own:
  virtctl create clone --source-name web --new-mac-address default:02-00-00-00-00-01 --new-smbios-serial s-1`,
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
	of.addFlags(command)
	return command
}

func (o *clone) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.name, "name", "", "Name of the clone; a random one when left out.")
	flags.StringVar(&o.sourceName, flagSourceName, "", "Name of what is cloned. Required.")
	flags.StringVar(&o.sourceType, flagSourceType, "vm", "What is cloned: vm or vmsnapshot.")
	flags.StringVar(&o.targetName, "target-name", "", "Name of the new VirtualMachine; a random one when left out.")
	flags.StringVar(&o.targetType, flagTargetType, "vm", "What is made: vm.")
	flags.StringArrayVar(&o.labels, "label-filter", nil, "Labels that are kept, such as '*' or 'some/*', or not kept, such as '!some/key'. Several times.")
	flags.StringArrayVar(&o.annotations, "annotation-filter", nil, "The same for annotations. Several times.")
	flags.StringArrayVar(&o.templateLabels, "template-label-filter", nil, "The same for labels of the template. Several times.")
	flags.StringArrayVar(&o.templateAnnotations, "template-annotation-filter", nil, "The same for annotations of the template. Several times.")
	flags.StringArrayVar(&o.addresses, flagNewMAC, nil, "MAC address of an interface, such as default:02-00-00-00-00-01. Several times.")
	flags.StringVar(&o.serial, "new-smbios-serial", "", "Serial number of the new machine.")
	_ = command.MarkFlagRequired(flagSourceName) // which exists
}

// object returns the VirtualMachineClone.
func (o *clone) object() (*clonev1.VirtualMachineClone, error) {
	if o.sourceName == "" {
		return nil, flagparams.Errorf(flagSourceName, "source name must not be empty")
	}
	source := &corev1.TypedLocalObjectReference{APIGroup: new(virtv1.SchemeGroupVersion.Group), Kind: "VirtualMachine", Name: o.sourceName}
	switch {
	case slices.Contains(snapshotWords, o.sourceType):
		source.APIGroup, source.Kind = new(snapshotv1.SchemeGroupVersion.Group), "VirtualMachineSnapshot"
	case !slices.Contains(machineWords, o.sourceType):
		return nil, flagparams.Errorf(flagSourceType, "source type %s is not supported. Supported types: vm, vmsnapshot", o.sourceType)
	}
	if !slices.Contains(machineWords, o.targetType) {
		return nil, flagparams.Errorf(flagTargetType, "target type %s is not supported. Supported types: vm", o.targetType)
	}
	addresses, err := o.newAddresses()
	if err != nil {
		return nil, err
	}
	object := &clonev1.VirtualMachineClone{
		TypeMeta:   metav1.TypeMeta{APIVersion: clonev1.SchemeGroupVersion.String(), Kind: clonev1.VirtualMachineCloneKind.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: nameOr(o.name, "clone-"), Namespace: o.namespace},
		Spec: clonev1.VirtualMachineCloneSpec{
			Source:       source,
			Target:       &corev1.TypedLocalObjectReference{APIGroup: new(virtv1.SchemeGroupVersion.Group), Kind: "VirtualMachine", Name: o.targetName},
			LabelFilters: o.labels, AnnotationFilters: o.annotations,
			Template:        clonev1.VirtualMachineCloneTemplateFilters{LabelFilters: o.templateLabels, AnnotationFilters: o.templateAnnotations},
			NewMacAddresses: addresses,
		},
	}
	if o.serial != "" {
		object.Spec.NewSMBiosSerial = &o.serial
	}
	return object, nil
}

// newAddresses are the addresses by the names of interfaces.
func (o *clone) newAddresses() (map[string]string, error) {
	var all map[string]string
	for _, text := range o.addresses {
		nic, mac, found := strings.Cut(text, ":")
		switch {
		case !found || nic == "":
			return nil, flagparams.Errorf(flagNewMAC, "%s has no interface; write for example default:02-00-00-00-00-01", text)
		case mac == "":
			return nil, flagparams.Errorf(flagNewMAC, "%s has no address; write for example default:02-00-00-00-00-01", text)
		case all[nic] != "":
			return nil, flagparams.Errorf(flagNewMAC, "interface %s is given twice", nic)
		}
		if all == nil {
			all = map[string]string{}
		}
		all[nic] = mac
	}
	return all, nil
}
