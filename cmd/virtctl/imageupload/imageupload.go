// Package imageupload has the verb that sends a disk image, or an archive of files, of this machine to a claim.
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

const description = `Sends a disk image of this machine to a DataVolume, whose claim it fills, or to a PersistentVolumeClaim alone. Without
--no-create that is made when there is none; with it a claim that is no target of uploads is made one, and what it holds is
written over. The image is raw, qcow2, VMDK, VHD, VHDX or VDI, which may be packed with gzip, xz, zstd or bzip2 and
lie in a tar archive, as in an OVA; it is written as it comes. With --archive-path the files of a tar archive, packed or
not, are unpacked into the claim's file system instead.

What is sent goes to cdi-uploadproxy: at --uploadproxy-url; without that flag where CDIConfig says, where there is one; and
otherwise through the API server, which needs the right to forward ports of pods in Slipway's namespace.`

const examples = `  # Send an image to a new DataVolume:
  virtctl image-upload dv debian --size=10Gi --image-path=debian-12.qcow2
  # To one that is there:
  virtctl image-upload dv debian --no-create --image-path=debian-12.qcow2
  # To a new claim without a DataVolume:
  virtctl image-upload pvc debian --size=10Gi --image-path=debian-12.qcow2
  # The files of an archive:
  virtctl image-upload dv site --size=1Gi --archive-path=site.tar.gz
  # By way of an Ingress, onto storage that binds at the first consumer:
  virtctl image-upload dv debian --size=10Gi --image-path=debian-12.qcow2 --uploadproxy-url=https://upload.example.com --force-bind`

// processed is how long the cluster may take to say that a disk is whole which its server has written.
const processed = 10 * time.Minute

// NewCommand returns the verb.
func NewCommand(cluster Cluster) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use: "image-upload dv|pvc NAME", Short: "Sends a disk image to a DataVolume or a claim", Long: description, Example: examples,
		Args: cobra.ExactArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args[0]); err != nil {
				return err
			}
			return o.run(cmd, cluster, args[0], args[1])
		},
	}
	set := command.Flags()
	set.StringVar(&o.image, "image-path", "", "File with the image.")
	set.StringVar(&o.archive, "archive-path", "", "Tar archive to unpack onto the claim, in the place of an image.")
	set.StringVar(&o.size, "size", "", "Size of the new disk, such as 10Gi.")
	set.StringVar(&o.class, "storage-class", "", "Storage class of the new disk; the cluster's default when left out.")
	set.StringVar(&o.access, "access-mode", "", "Access mode of the new disk, such as ReadWriteMany; when left out a DataVolume's is as the class's StorageProfile has it, a claim's ReadWriteOnce.")
	set.StringVar(&o.mode, "volume-mode", "", "Volume mode of the new disk: filesystem or block; when left out a DataVolume's is as the class's StorageProfile has it, a claim's filesystem.")
	set.BoolVar(&o.block, "block-volume", false, "The same as --volume-mode=block.")
	set.BoolVar(&o.noCreate, "no-create", false, "Make no DataVolume or claim: it is there.")
	set.BoolVar(&o.forceBind, "force-bind", false, "Bind the claim at once, where its class waits for a first consumer.")
	set.StringVar(&o.proxyURL, "uploadproxy-url", "", "Address of cdi-uploadproxy.")
	set.BoolVar(&o.insecure, "insecure", false, "Take any certificate of cdi-uploadproxy.")
	set.UintVar(&o.waitSeconds, "wait-secs", 300, "Seconds to wait until an image is taken.")
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
		{!strings.EqualFold(kind, kindVolume) && !strings.EqualFold(kind, kindClaim), fmt.Sprintf("invalid resource type %s: write dv or pvc", kind)},
		{o.image != "" && o.archive != "", "--image-path and --archive-path exclude each other: give one of them"},
		{o.path() == "", "--image-path is missing: name the file with the image, or give --archive-path"},
		{o.archive != "" && (o.block || o.mode == "block"), "In archive upload the volume mode should always be filesystem: leave out --volume-mode and --block-volume"},
		{o.mode != "" && o.mode != "block" && o.mode != "filesystem", fmt.Sprintf("invalid volume mode %q: write block or filesystem", o.mode)},
		{o.block && o.mode == "filesystem", "--block-volume and --volume-mode=filesystem contradict each other"},
		{o.defaults.instancetypeKind != "" && o.defaults.instancetype == "", "--default-instancetype-kind needs --default-instancetype"},
		{o.defaults.preferenceKind != "" && o.defaults.preference == "", "--default-preference-kind needs --default-preference"},
		{o.noCreate && o.describesNew(), "--no-create takes the DataVolume or claim as it is: leave out the flags about a new one"},
	} {
		if problem.wrong {
			return errors.New(problem.what)
		}
	}
	return nil
}

// path is the file that is sent.
func (o *options) path() string {
	if o.archive != "" {
		return o.archive
	}
	return o.image
}

// noun is what that file is.
func (o *options) noun() string {
	if o.archive != "" {
		return "archive"
	}
	return "image"
}

// describesNew says whether a flag is about a DataVolume or claim that is made.
func (o *options) describesNew() bool {
	return o.size != "" || o.class != "" || o.access != "" || o.mode != "" || o.block || o.defaults != (defaults{}) || o.dataSource
}

// What an image is sent to, as users write it.
const (
	kindVolume = "dv"
	kindClaim  = "pvc"
)

// upload is one upload under way.
type upload struct {
	*options
	cmd       *cobra.Command
	cluster   Cluster
	client    client.WithWatch
	target    target
	namespace string
	name      string
	file      *os.File
	bytes     int64
	patience  time.Duration // for how long nothing of the file need be taken
}

func (o *options) run(cmd *cobra.Command, cluster Cluster, kind, name string) error {
	u := &upload{options: o, cmd: cmd, cluster: cluster, name: name, patience: stalledAfter}
	u.target = &volume{upload: u}
	if strings.EqualFold(kind, kindClaim) {
		u.target = &claim{upload: u}
	}
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
	if err := u.target.prepare(ctx); err != nil {
		return err
	}
	to, err := u.reach(ctx)
	if err != nil {
		return u.target.giveUp(ctx, false, err)
	}
	defer func() { to.close() }() // it may be another one by then
	u.say("Uploading data to %s", to.shown)
	if err := u.sendRepeatedly(ctx, to); err != nil {
		return u.target.giveUp(ctx, true, err)
	}
	u.say("Uploading data completed successfully, waiting for processing to complete, you can hit ctrl-c without interrupting the progress")
	if err := u.await(ctx, whole, processed); err != nil {
		return err
	}
	u.say("Processing completed successfully")
	u.say("Uploading %s completed successfully", o.path())
	return nil
}

// reach waits until an image is taken, and finds where to send it.
func (u *upload) reach(ctx context.Context) (*proxy, error) {
	if err := u.await(ctx, ready, time.Duration(u.waitSeconds)*time.Second); err != nil {
		return nil, err
	}
	return u.findProxy(ctx)
}

func (u *upload) say(format string, args ...any) {
	fmt.Fprintf(u.cmd.OutOrStdout(), format+"\n", args...)
}

// open opens what is sent, which must be a file: its size is told before it is sent, and it may be sent again.
func (u *upload) open() error {
	file, err := os.Open(u.path())
	if err != nil {
		return fmt.Errorf("opening the %s: %w", u.noun(), err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("opening the %s: %w", u.noun(), err)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("the %s %s is no file: write it to one first", u.noun(), u.path())
	case info.Size() == 0:
		err = fmt.Errorf("the %s %s is empty", u.noun(), u.path())
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
