// Package imageupload has the verb that sends a disk image of this machine to a claim.
package imageupload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is what the verb needs of a cluster.
type Cluster interface {
	Client() (client.WithWatch, error)
	Config() (*rest.Config, error)
	Namespace() (string, error)
}

// options are the flags.
type options struct {
	insecure bool
	proxyURL string

	size, class, access, mode string
	block                     bool
	image, archive            string
	noCreate, forceBind       bool
	waitSeconds, retries      uint
	dataSource                bool
	defaults                  defaults
}

// defaults are what instance type and preference suit the disk.
type defaults struct{ instancetype, instancetypeKind, preference, preferenceKind string }

const description = `Sends a disk image of this machine to a DataVolume, whose claim it fills. Without --no-create the DataVolume is made
when there is none. The image is raw, qcow2, VMDK, VHD, VHDX or VDI, which may be packed with gzip, xz, zstd or bzip2 and
lie in a tar archive, as in an OVA; it is written as it comes.

The image goes to cdi-uploadproxy: at --uploadproxy-url; without that flag where CDIConfig says, where there is one; and
otherwise through the API server, which needs the right to forward ports of pods in Slipway's namespace.`

const examples = `  # Send an image to a new DataVolume:
  virtctl image-upload dv debian --size=10Gi --image-path=debian-12.qcow2
  # To one that is there:
  virtctl image-upload dv debian --no-create --image-path=debian-12.qcow2
  # By way of an Ingress, onto storage that binds at the first consumer:
  virtctl image-upload dv debian --size=10Gi --image-path=debian-12.qcow2 --uploadproxy-url=https://upload.example.com --force-bind`

// processed is how long the cluster may take to say that a disk is whole which its server has written.
const processed = 10 * time.Minute

// NewCommand returns the verb.
func NewCommand(cluster Cluster) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use: "image-upload dv NAME", Short: "Sends a disk image to a DataVolume", Long: description, Example: examples,
		Args: cobra.ExactArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args[0]); err != nil {
				return err
			}
			return o.run(cmd, cluster, args[1])
		},
	}
	set := command.Flags()
	set.StringVar(&o.image, "image-path", "", "File with the image.")
	set.StringVar(&o.archive, "archive-path", "", "Tar archive to unpack onto the claim; not built yet.")
	set.StringVar(&o.size, "size", "", "Size of the new disk, such as 10Gi.")
	set.StringVar(&o.class, "storage-class", "", "Storage class of the new DataVolume; the cluster's default when left out.")
	set.StringVar(&o.access, "access-mode", "", "Access mode of the new DataVolume, such as ReadWriteMany; as the class's StorageProfile has it when left out.")
	set.StringVar(&o.mode, "volume-mode", "", "Volume mode of the new DataVolume: filesystem or block; as the class's StorageProfile has it when left out.")
	set.BoolVar(&o.block, "block-volume", false, "The same as --volume-mode=block.")
	set.BoolVar(&o.noCreate, "no-create", false, "Make no DataVolume: it is there.")
	set.BoolVar(&o.forceBind, "force-bind", false, "Bind the new claim at once, where its class waits for a first consumer.")
	set.StringVar(&o.proxyURL, "uploadproxy-url", "", "Address of cdi-uploadproxy.")
	set.BoolVar(&o.insecure, "insecure", false, "Take any certificate of cdi-uploadproxy.")
	set.UintVar(&o.waitSeconds, "wait-secs", 300, "Seconds to wait until the DataVolume takes an image.")
	set.UintVar(&o.retries, "retry", 5, "How often to send the image again when the connection broke or the upload server was busy.")
	set.BoolVar(&o.dataSource, "datasource", false, "Make a DataSource of the same name that names the claim.")
	set.StringVar(&o.defaults.instancetype, "default-instancetype", "", "Instance type that VMs with the disk get when they name none.")
	set.StringVar(&o.defaults.instancetypeKind, "default-instancetype-kind", "", "Its kind; VirtualMachineClusterInstancetype when left out.")
	set.StringVar(&o.defaults.preference, "default-preference", "", "Preference that VMs with the disk get when they name none.")
	set.StringVar(&o.defaults.preferenceKind, "default-preference-kind", "", "Its kind; VirtualMachineClusterPreference when left out.")
	return command
}

// validate says what is wrong with the flags. Kind is of what the image is sent to.
func (o *options) validate(kind string) error {
	o.mode = strings.ToLower(o.mode)
	for _, problem := range []struct {
		wrong bool
		what  string
	}{
		{strings.EqualFold(kind, "pvc"), "sending an image to a PersistentVolumeClaim alone is not built yet: send it to a DataVolume (image-upload dv NAME); its claim has the same name"},
		{!strings.EqualFold(kind, "dv") && !strings.EqualFold(kind, "pvc"), fmt.Sprintf("invalid resource type %s: write dv", kind)},
		{o.archive != "", "--archive-path is not built yet: publish the files as a disk image and use --image-path"},
		{o.image == "", "--image-path is missing: name the file with the image"},
		{o.mode != "" && o.mode != "block" && o.mode != "filesystem", fmt.Sprintf("invalid volume mode %q: write block or filesystem", o.mode)},
		{o.block && o.mode == "filesystem", "--block-volume and --volume-mode=filesystem contradict each other"},
		{o.defaults.instancetypeKind != "" && o.defaults.instancetype == "", "--default-instancetype-kind needs --default-instancetype"},
		{o.defaults.preferenceKind != "" && o.defaults.preference == "", "--default-preference-kind needs --default-preference"},
		{o.noCreate && o.describesNew(), "--no-create takes the DataVolume as it is: leave out the flags about a new one"},
	} {
		if problem.wrong {
			return errors.New(problem.what)
		}
	}
	return nil
}

// describesNew says whether a flag is about a DataVolume that is made.
func (o *options) describesNew() bool {
	return o.size != "" || o.class != "" || o.access != "" || o.mode != "" || o.block || o.forceBind || o.defaults != (defaults{}) || o.dataSource
}

// upload is one upload under way.
type upload struct {
	*options
	cmd       *cobra.Command
	cluster   Cluster
	client    client.WithWatch
	namespace string
	name      string
	file      *os.File
	bytes     int64
}

func (o *options) run(cmd *cobra.Command, cluster Cluster, name string) error {
	u := &upload{options: o, cmd: cmd, cluster: cluster, name: name}
	if err := u.open(); err != nil {
		return err
	}
	defer u.file.Close()
	var err error
	if u.client, err = cluster.Client(); err != nil {
		return err //nolint:wrapcheck // it says what it was doing
	}
	if u.namespace, err = cluster.Namespace(); err != nil {
		return err //nolint:wrapcheck // as above
	}
	ctx := cmd.Context()
	dv, err := u.target(ctx)
	if err != nil {
		return err
	}
	if err := u.await(ctx, dv, cdiv1.UploadReady, time.Duration(o.waitSeconds)*time.Second); err != nil {
		return err
	}
	to, err := u.findProxy(ctx)
	if err != nil {
		return err
	}
	defer to.close()
	u.say("Uploading data to %s", to.shown)
	if err := u.sendRepeatedly(ctx, to); err != nil {
		return err
	}
	u.say("Uploading data completed successfully, waiting for processing to complete, you can hit ctrl-c without interrupting the progress")
	if err := u.await(ctx, dv, cdiv1.Succeeded, processed); err != nil {
		return err
	}
	u.say("Processing completed successfully")
	u.say("Uploading %s completed successfully", o.image)
	return nil
}

func (u *upload) say(format string, args ...any) {
	fmt.Fprintf(u.cmd.OutOrStdout(), format+"\n", args...)
}

// open opens the image, which must be a file: its size is told before it is sent, and it may be sent again.
func (u *upload) open() error {
	file, err := os.Open(u.image)
	if err != nil {
		return fmt.Errorf("opening the image: %w", err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("opening the image: %w", err)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("the image %s is no file: write it to one first", u.image)
	case info.Size() == 0:
		err = fmt.Errorf("the image %s is empty", u.image)
	default:
		u.file, u.bytes = file, info.Size()
		return nil
	}
	_ = file.Close() // nothing was read
	return err
}

func (u *upload) key() client.ObjectKey {
	return client.ObjectKey{Namespace: u.namespace, Name: u.name}
}

// within is ctx with a bound; without one when that is 0.
func within(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	if bound == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, bound)
}
