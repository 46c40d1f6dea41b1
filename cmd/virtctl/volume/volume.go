// Package volume has the verbs that give a running machine a disk and take it away.
package volume

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// Cluster is what the verbs need of a cluster.
type Cluster interface {
	subresource.Cluster
	Client() (client.WithWatch, error)
}

const (
	verbAdd    = "addvolume"
	verbRemove = "removevolume"
)

// NewCommands returns the verbs.
func NewCommands(cluster Cluster) []*cobra.Command {
	return []*cobra.Command{newAddCommand(cluster), newRemoveCommand(cluster)}
}

// flags are those that both verbs have.
type flags struct {
	volume  string
	persist bool
	dryRun  bool
}

func (f *flags) add(command *cobra.Command) {
	set := command.Flags()
	set.StringVar(&f.volume, "volume-name", "", "Name of the volume: of the PersistentVolumeClaim or DataVolume.")
	set.BoolVar(&f.persist, "persist", false, "Change the VirtualMachine, so that it stays so at the next start.")
	set.BoolVar(&f.dryRun, "dry-run", false, "Let the cluster check the request, and change nothing.")
	_ = command.MarkFlagRequired("volume-name") // the flag was added above
}

func (f *flags) dryRunOption() []string {
	if f.dryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// put asks for verb of the VM, or of its instance alone.
func (f *flags) put(ctx context.Context, cluster Cluster, name, verb string, options any) error {
	api, err := subresource.Of(cluster)
	if err != nil {
		return err
	}
	if f.persist {
		return api.Put(ctx, subresource.Machine(name), verb, options)
	}
	return api.Put(ctx, subresource.Instance(name), verb, options)
}

// disk are the flags about the new disk.
type disk struct{ serial, cache, kind, bus string }

func (d *disk) add(command *cobra.Command) {
	set := command.Flags()
	set.StringVar(&d.serial, "serial", "", "Serial number by which the guest knows the disk; the volume's name when left out.")
	set.StringVar(&d.cache, "cache", "", "Cache mode of the disk: none, writethrough or writeback.")
	set.StringVar(&d.kind, "disk-type", "disk", "What the guest sees: disk or lun.")
	set.StringVar(&d.bus, "bus", string(virtv1.DiskBusSCSI), "Bus of the disk: scsi or virtio.")
}

// build makes the disk called name.
func (d *disk) build(name string) (*virtv1.Disk, error) {
	out := &virtv1.Disk{Name: name, Serial: d.serial}
	if out.Serial == "" {
		out.Serial = name
	}
	bus := virtv1.DiskBus(d.bus)
	if bus != virtv1.DiskBusSCSI && bus != virtv1.DiskBusVirtio {
		return nil, fmt.Errorf("error adding volume, invalid bus %s: use scsi or virtio", d.bus)
	}
	switch d.kind {
	case "disk":
		out.Disk = &virtv1.DiskTarget{Bus: bus}
	case "lun":
		if bus != virtv1.DiskBusSCSI {
			return nil, fmt.Errorf("error adding volume, a lun cannot be on the bus %s: use scsi", d.bus)
		}
		out.LUN = &virtv1.LunTarget{Bus: bus}
	default:
		return nil, fmt.Errorf("error adding volume, invalid disk type %s: use disk or lun", d.kind)
	}
	switch cache := virtv1.DriverCache(d.cache); cache {
	case "", virtv1.CacheNone, virtv1.CacheWriteThrough, virtv1.CacheWriteBack:
		out.Cache = cache
	default:
		return nil, fmt.Errorf("error adding volume, invalid cache value %s: use none, writethrough or writeback", d.cache)
	}
	return out, nil
}

func newAddCommand(cluster Cluster) *cobra.Command {
	var common flags
	var wanted disk
	command := &cobra.Command{
		Use: verbAdd + " NAME", Short: "Adds a volume to a running VM",
		Long: `Gives a running VM, or VMI, the disk on a PersistentVolumeClaim or DataVolume of its namespace. It goes when the VM
stops; with --persist the VirtualMachine is changed, and has it at the next start, too.`,
		Example: `  # Give the VM "web" the claim "data" until it stops:
  virtctl addvolume web --volume-name=data
  # Give it for good, with a serial number of its own:
  virtctl addvolume web --volume-name=data --serial=D1 --persist`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			disk, err := wanted.build(common.volume)
			if err != nil {
				return err
			}
			source, err := sourceOf(cmd.Context(), cluster, common.volume)
			if err != nil {
				return subresource.Failed("error adding volume, ", err)
			}
			options := &virtv1.AddVolumeOptions{Name: common.volume, Disk: disk, VolumeSource: source, DryRun: common.dryRunOption()}
			if err := common.put(cmd.Context(), cluster, args[0], verbAdd, options); err != nil {
				return subresource.Failed("error adding volume, ", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Successfully submitted add volume request to VM %s for volume %s\n", args[0], common.volume)
			return nil
		},
	}
	common.add(command)
	wanted.add(command)
	return command
}

// sourceOf says whether name is a DataVolume's or a claim's.
func sourceOf(ctx context.Context, cluster Cluster, name string) (*virtv1.HotplugVolumeSource, error) {
	cl, err := cluster.Client()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was doing
	}
	namespace, err := cluster.Namespace()
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	err = cl.Get(ctx, key, &cdiv1.DataVolume{})
	if err == nil {
		return &virtv1.HotplugVolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: name, Hotpluggable: true}}, nil
	}
	if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) { // a cluster may have no DataVolumes at all
		return nil, fmt.Errorf("reading DataVolume %s: %w", name, err)
	}
	err = cl.Get(ctx, key, &corev1.PersistentVolumeClaim{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("Volume %s is not a DataVolume or PersistentVolumeClaim", name) //nolint:staticcheck,revive // the field's own words
	}
	if err != nil {
		return nil, fmt.Errorf("reading PersistentVolumeClaim %s: %w", name, err)
	}
	claim := &virtv1.PersistentVolumeClaimVolumeSource{Hotpluggable: true}
	claim.ClaimName = name
	return &virtv1.HotplugVolumeSource{PersistentVolumeClaim: claim}, nil
}

func newRemoveCommand(cluster Cluster) *cobra.Command {
	var common flags
	command := &cobra.Command{
		Use: verbRemove + " NAME", Short: "Removes a volume from a running VM",
		Long: `Takes from a running VM, or VMI, a volume that was added while it ran, or may be. What is on the volume stays. With
--persist the VirtualMachine is changed, and does not have it at the next start either.`,
		Example: `  # Take the volume "data" from the VM "web", which was added without --persist:
  virtctl removevolume web --volume-name=data
  # Take one that was added with --persist:
  virtctl removevolume web --volume-name=data --persist`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options := &virtv1.RemoveVolumeOptions{Name: common.volume, DryRun: common.dryRunOption()}
			if err := common.put(cmd.Context(), cluster, args[0], verbRemove, options); err != nil {
				return subresource.Failed("error removing volume, ", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Successfully submitted remove volume request to VM %s for volume %s\n", args[0], common.volume)
			return nil
		},
	}
	common.add(command)
	return command
}
