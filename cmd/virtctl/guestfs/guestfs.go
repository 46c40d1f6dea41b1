// Package guestfs has the verb that runs the guestfs tools in the cluster, on a claim with a disk.
package guestfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
	"github.com/slipway-vm/slipway/cmd/virtctl/terminal"
)

// Cluster is what the verb needs of a cluster.
type Cluster interface {
	subresource.Cluster
	Client() (client.WithWatch, error)
}

// options are the flags.
type options struct {
	image, pullPolicy string
	kvm, root         bool
	uid, gid, fsGroup string
	vm                string
	// attach leads the user's input and output to the pod's.
	attach func(ctx context.Context, cluster subresource.Cluster, pod *corev1.Pod, user streams) error
}

// NewCommand returns the verb.
func NewCommand(cluster Cluster) *cobra.Command {
	o := &options{attach: attach}
	return o.command(cluster)
}

func (o *options) command(cluster Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:   "guestfs PVC",
		Short: "Opens a shell with the guestfs tools on a claim",
		Long: `Starts a pod with the guestfs tools and a PersistentVolumeClaim, opens a shell in it, and deletes it when the shell
ends. The claim's file system is at /disk; a claim of mode Block is the device /dev/vda.

No pod and no VM may use the claim meanwhile. What comes from a file or another program runs as a script.`,
		Example: `  # A shell with the claim "web-disk":
  virtctl guestfs web-disk

  # The file systems of its disk, on a cluster without KVM:
  echo 'virt-filesystems --long --add disk.img' | virtctl guestfs web-disk --kvm=false`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, cluster, args[0]) },
	}
	flags := command.Flags()
	flags.StringVar(&o.image, "image", "", "Image with the guestfs tools and /entrypoint.sh; by default the one that the cluster names.")
	flags.StringVar(&o.pullPolicy, "pull-policy", string(corev1.PullIfNotPresent), "When the node pulls the image: Always, IfNotPresent or Never.")
	flags.BoolVar(&o.kvm, "kvm", true, "Use the node's KVM. Without it the tools emulate a processor, and are slow.")
	flags.BoolVar(&o.root, "root", false, "Run as root.")
	flags.StringVar(&o.uid, "uid", "", "User ID to run as; by default the image's.")
	flags.StringVar(&o.gid, "gid", "", "Group ID to run as. Goes with --uid.")
	flags.StringVar(&o.fsGroup, "fsGroup", "", "Group ID that the claim's files are given.")
	flags.StringVar(&o.vm, "vm", "", "VM whose node selector, affinity, tolerations and labels the pod is to have.")
	return command
}

func (o *options) run(cmd *cobra.Command, cluster Cluster, name string) error {
	ctx := cmd.Context()
	ids, err := o.identity()
	if err != nil {
		return err
	}
	if err := o.checkPolicy(); err != nil {
		return err
	}
	if err := o.findImage(ctx, cluster); err != nil {
		return err
	}
	namespace, err := cluster.Namespace()
	if err != nil {
		return err //nolint:wrapcheck // it says what it was doing
	}
	c, err := cluster.Client()
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Use image: %s \n", o.image)
	claim, err := freeClaim(ctx, c, client.ObjectKey{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	vm := &virtv1.VirtualMachine{}
	if o.vm != "" {
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: o.vm}, vm); err != nil {
			return fmt.Errorf("reading VirtualMachine %s/%s: %w", namespace, o.vm, err)
		}
	}
	user := streams{in: cmd.InOrStdin(), out: cmd.OutOrStdout(), err: cmd.ErrOrStderr()}
	pod := o.pod(claim, vm, ids, terminal.Is(user.in))
	if err := c.Create(ctx, pod); err != nil {
		return fmt.Errorf("starting the pod %s/%s: %w", namespace, pod.Name, err)
	}
	return errors.Join(o.use(ctx, cluster, c, pod, user), remove(ctx, c, pod))
}

// use leads the user to the pod, once it runs, until its shell ends.
func (o *options) use(ctx context.Context, cluster Cluster, c client.WithWatch, pod *corev1.Pod, user streams) error {
	if err := awaitRunning(ctx, c, pod, user.err); err != nil {
		return err
	}
	fmt.Fprintf(user.err, "The PVC has been mounted at %s \n", placeOf(pod))
	if err := o.attach(ctx, cluster, pod, user); err != nil {
		return fmt.Errorf("attaching to the pod %s: %w", pod.Name, err)
	}
	if terminal.Is(user.in) {
		return nil // the user saw how his last command ended
	}
	return awaitEnd(ctx, c, pod)
}

// findImage asks the cluster for the image of the tools, unless the user names one.
func (o *options) findImage(ctx context.Context, cluster Cluster) error {
	if o.image != "" {
		return nil
	}
	api, err := subresource.Of(cluster)
	if err != nil {
		return err
	}
	data, err := api.GetGlobal(ctx, "guestfs")
	if err != nil {
		return subresource.Failed("could not get guestfs image info: ", err)
	}
	var parts image
	if err := json.Unmarshal(data, &parts); err != nil {
		return fmt.Errorf("decoding the guestfs image info: %w", err)
	}
	o.image, err = parts.name()
	return err
}

// image is what the API says of it: its whole name, or the parts of it.
type image struct {
	Whole    string `json:"gsImage"`
	Registry string `json:"registry"`
	Prefix   string `json:"imagePrefix"`
	Tag      string `json:"tag"`
	Digest   string `json:"digest"`
}

func (i image) name() (string, error) {
	if i.Whole != "" {
		return i.Whole, nil
	}
	name := i.Prefix + "libguestfs-tools"
	if i.Registry != "" {
		name = i.Registry + "/" + name
	}
	switch {
	case i.Digest != "":
		return name + "@" + i.Digest, nil
	case i.Tag != "":
		return name + ":" + i.Tag, nil
	}
	return "", errors.New("neither the digest nor the tag for the image has been specified; give --image")
}

// freeClaim reads a claim that nothing uses.
func freeClaim(ctx context.Context, c client.Client, key client.ObjectKey) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := c.Get(ctx, key, claim)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the PVC %s doesn't exist", key.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading PersistentVolumeClaim %s: %w", key, err)
	}
	user, err := userOf(ctx, c, claim)
	if err != nil {
		return nil, err
	}
	if user != "" {
		return nil, fmt.Errorf("PVC %s is used by another pod: %s; stop that first", key.Name, user)
	}
	return claim, nil
}
