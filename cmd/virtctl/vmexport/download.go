package vmexport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// Formats that a user asks for.
const (
	formatGzip = "gzip"
	formatRaw  = "raw"
)

// Download is one download. Its flags are those of AddFlags.
type Download struct {
	// File is one file of a claim that holds files, "" for all of it. It is downloaded as it is.
	File string

	output, format, volume string
	portForward, insecure  bool
	localPort              uint16
	serviceURL             string
	retries                uint
	patience               time.Duration

	manifest, secret bool
	manifestFormat   string
}

// AddFlags adds the flags about how is downloaded.
func (d *Download) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&d.output, "output", "", "File to download to; - is standard output.")
	set.StringVar(&d.format, "format", "", "Form of what is downloaded: gzip, which it is when left out, or raw.")
	set.BoolVar(&d.portForward, "port-forward", false, "Download through the API server, also when the export can be reached otherwise.")
	set.Uint16Var(&d.localPort, "local-port", 0, "Port of this machine for --port-forward; any when left out.")
	set.StringVar(&d.serviceURL, "service-url", "", "Address, host or host:port, by which the export's Service is reached, a node port for instance.")
	set.BoolVar(&d.insecure, "insecure", false, "Take any certificate of the server.")
	set.UintVar(&d.retries, "retry", 0, "How often to try again when the connection broke; what can be, is continued.")
	set.DurationVar(&d.patience, "readiness-timeout", 2*time.Minute, "How long to wait until the export is ready.")
}

// Validate says what is wrong with the flags.
func (d *Download) Validate() error {
	if err := d.validateManifest(); err != nil {
		return err
	}
	switch {
	case d.output == "":
		return errors.New("need to specify the '--output' flag when using 'download': name a file, or - for standard output")
	case d.format != "" && d.format != formatGzip && d.format != formatRaw:
		return fmt.Errorf("%s is not a valid value, acceptable values are gzip or raw", d.format)
	case d.localPort != 0 && !d.portForward:
		return errors.New("--local-port needs --port-forward")
	case d.serviceURL != "" && d.portForward:
		return errors.New("--service-url and --port-forward contradict each other: give one of them")
	}
	return nil
}

func newDownloadCommand(cluster Cluster) *cobra.Command {
	var from source
	var d Download
	var keep, end bool
	command := &cobra.Command{
		Use: "download NAME", Short: "Downloads a volume of an export",
		Long: `Downloads a volume of a VirtualMachineExport. With --vm, --snapshot or --pvc the export is made first, unless it is there, and
deleted when it was made for this. A disk is packed with gzip, or raw; a claim with files is an archive, tar.gz, or with
--format=raw tar. Where virt-exportproxy is published, what is downloaded comes from there, and else through the API server.

With --manifest it is the definition of the VM, with DataVolumes that import its disks from the export, which therefore stays: from
where virt-exportproxy is published, for any cluster; or with --port-forward or --service-url from within this one.`,
		Example: `  # Download the one disk of the stopped VM "web":
  virtctl vmexport download web-disks --vm=web --output=web.img.gz
  # One of several disks, of a snapshot, unpacked:
  virtctl vmexport download web-disks --snapshot=web-before --volume=web-root --format=raw --output=root.img
  # From an export that is there, over a node port:
  virtctl vmexport download web-disks --service-url=192.0.2.7:30443 --output=web.img.gz
  # Make a copy of the VM "web" in another namespace:
  virtctl vmexport download web-copy --vm=web --manifest --include-secret | kubectl apply -n other -f -`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case keep && end:
				return errors.New("--keep-vme and --delete-vme contradict each other: give one of them")
			case from.ttl != "" && !from.given():
				return errors.New("--ttl is about a new export; add --vm, --snapshot or --pvc")
			case len(from.labels)+len(from.annotations) > 0 && !from.given():
				return errors.New("--labels and --annotations are about a new export; add --vm, --snapshot or --pvc")
			case d.manifest && end:
				return errors.New("--manifest and --delete-vme contradict each other: the disks of the definition are imported from the export, which must stay for that")
			}
			if err := d.Validate(); err != nil {
				return err
			}
			return d.run(cmd, cluster, args[0], plan{from: from, keep: keep || d.manifest, end: end})
		},
	}
	set := command.Flags()
	from.addFlags(set)
	d.AddFlags(set)
	set.StringVar(&d.volume, "volume", "", "The volume; needs not be named where there is only one.")
	set.BoolVar(&keep, "keep-vme", false, "Keep an export that was made for this.")
	set.BoolVar(&end, "delete-vme", false, "Delete the export also when it was there.")
	set.BoolVar(&d.manifest, "manifest", false, "Download the definition of the VM, to standard output unless there is --output.")
	set.BoolVar(&d.secret, "include-secret", false, "With --manifest: also the Secret by which the disks are imported, with the token.")
	set.StringVar(&d.manifestFormat, "manifest-output-format", "", "With --manifest: yaml, which it is when left out, or json.")
	return command
}

// plan is what becomes of the export before and after.
type plan struct {
	from source
	// keep leaves an export that was made for this, end deletes one that was there.
	keep, end bool
}

// OfClaim downloads from a claim by an export called name, which it makes and deletes.
func (d *Download) OfClaim(cmd *cobra.Command, cluster Cluster, name, claim string) error {
	return d.run(cmd, cluster, name, plan{from: source{claim: claim}})
}

// download is one download under way.
type download struct {
	*Download
	cluster Cluster
	client  client.WithWatch
	key     client.ObjectKey
	export  *exportv1.VirtualMachineExport // when it was ready
	out     io.Writer                      // for the user to read
	stdout  io.Writer
	pause   time.Duration // before another try
}

func (d *Download) run(cmd *cobra.Command, cluster Cluster, name string, p plan) error {
	c, key, err := reach(cluster, name)
	if err != nil {
		return err
	}
	one := &download{Download: d, cluster: cluster, client: c, key: key, out: cmd.OutOrStdout(), stdout: cmd.OutOrStdout(), pause: retryAfter}
	if d.output == stdoutName {
		one.out = cmd.ErrOrStderr()
	}
	ctx := cmd.Context()
	made := false
	if p.from.given() {
		if made, err = one.make(ctx, p.from); err != nil {
			return err
		}
	}
	if made && !p.keep || p.end {
		defer one.remove(ctx)
	}
	if d.manifest {
		return one.define(ctx)
	}
	return one.fetch(ctx)
}

func (d *download) say(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// make makes the export, and says whether it did.
func (d *download) make(ctx context.Context, from source) (bool, error) {
	export, err := from.export(d.key)
	if err != nil {
		return false, err
	}
	err = d.client.Create(ctx, export)
	if apierrors.IsAlreadyExists(err) {
		return false, d.sameSource(ctx, export)
	}
	if err != nil {
		return false, fmt.Errorf("creating VirtualMachineExport %s: %w", d.key, err)
	}
	d.say(created, d.key)
	return true, nil
}

// sameSource errs when the export that is there is of something else than wanted.
func (d *download) sameSource(ctx context.Context, wanted *exportv1.VirtualMachineExport) error {
	there := &exportv1.VirtualMachineExport{}
	if err := d.client.Get(ctx, d.key, there); err != nil {
		return fmt.Errorf("reading VirtualMachineExport %s: %w", d.key, err)
	}
	is, want := there.Spec.Source, wanted.Spec.Source
	if is.Kind != want.Kind || is.Name != want.Name {
		return fmt.Errorf("VirtualMachineExport '%s' already exists, of %s %s: delete it, or choose another name", d.key, is.Kind, is.Name)
	}
	return nil
}

// remove deletes the export when all is done, also after an interrupt.
func (d *download) remove(ctx context.Context) {
	const bound = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	text, err := remove(ctx, d.client, d.key)
	if err != nil {
		d.say("%v; it ends by itself when its time is over\n", err)
		return
	}
	d.say(text, d.key)
}

// await returns once the export is ready, and errs when it never will be, or not in time.
func (d *download) await(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	told := ""
	err := await.Object(bounded, d.client, &exportv1.VirtualMachineExportList{}, d.key, func(export *exportv1.VirtualMachineExport, exists bool) (bool, error) {
		if !exists {
			return false, errGone
		}
		status := ptr.Deref(export.Status, exportv1.VirtualMachineExportStatus{})
		why := reason(status)
		switch {
		case status.Phase == exportv1.Ready && status.Links != nil:
			d.export = export
			return true, nil
		case status.Phase == exportv1.Skipped, status.Phase == exportv1.Terminated:
			return false, fmt.Errorf("it is %s: %s", status.Phase, why)
		case told != why:
			d.say("waiting for VM Export %s status to be ready: %s\n", d.key.Name, why)
			told = why
		}
		return false, nil
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errGone):
		return fmt.Errorf("unable to get '%s' VirtualMachineExport: it does not exist; name with --vm, --snapshot or --pvc what is to be exported", d.key)
	case ctx.Err() == nil && bounded.Err() != nil:
		return fmt.Errorf("VirtualMachineExport %s is not ready after %s: %s; raise --readiness-timeout or look at it with kubectl describe vmexport %s",
			d.key, d.patience, told, d.key.Name)
	}
	return err //nolint:wrapcheck // it says what it was doing
}

var errGone = errors.New("the export is gone")

// reason is what the export's condition says.
func reason(status exportv1.VirtualMachineExportStatus) string {
	for _, condition := range status.Conditions {
		if condition.Type != exportv1.ConditionReady {
			continue
		}
		if condition.Message != "" {
			return condition.Message
		}
		return condition.Reason
	}
	return "nothing is said of it yet"
}

// token reads the token that the volumes are given out for.
func (d *download) token(ctx context.Context) (string, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: d.key.Namespace, Name: ptr.Deref(d.export.Status.TokenSecretRef, "")}
	if err := d.client.Get(ctx, key, secret); err != nil {
		return "", fmt.Errorf("reading the token of VirtualMachineExport %s in Secret %s: %w", d.key, key.Name, err)
	}
	token := strings.TrimRight(string(secret.Data[vmexport.KeyToken]), "\r\n") // as the server reads it
	if token == "" {
		return "", fmt.Errorf("secret %s has no %s, by which VirtualMachineExport %s is downloaded", key.Name, vmexport.KeyToken, d.key)
	}
	return token, nil
}
