// Package vmexport has the verbs that let volumes be downloaded, and download them.
package vmexport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is what the verbs need of a cluster.
type Cluster interface {
	Client() (client.WithWatch, error)
	Config() (*rest.Config, error)
	Namespace() (string, error)
}

// NewCommand returns vmexport with its verbs.
func NewCommand(cluster Cluster) *cobra.Command {
	command := &cobra.Command{
		Use: "vmexport create|delete|download", Short: "Lets volumes be downloaded, and downloads them",
		Long: `Makes and deletes VirtualMachineExports, by which the volumes of a stopped VM, of a VM's snapshot, or of one claim can be
downloaded, and downloads from them.`,
	}
	command.AddCommand(newCreateCommand(cluster), newDeleteCommand(cluster), newDownloadCommand(cluster))
	return command
}

// source are the flags about what is exported, and for how long.
type source struct {
	vm, snapshot, claim string
	ttl                 string
	labels, annotations map[string]string
}

func (s *source) addFlags(set *pflag.FlagSet) {
	set.StringVar(&s.vm, "vm", "", "Export the volumes of this VM, which must not run.")
	set.StringVar(&s.snapshot, "snapshot", "", "Export the volumes of this VirtualMachineSnapshot.")
	set.StringVar(&s.claim, "pvc", "", "Export this PersistentVolumeClaim.")
	set.StringVar(&s.ttl, "ttl", "", "How long the export exists, such as 30m; two hours when left out.")
	set.StringToStringVar(&s.labels, "labels", nil, "Labels of the export and its pod, as KEY=VALUE,KEY=VALUE; may be given several times.")
	set.StringToStringVar(&s.annotations, "annotations", nil, "Annotations of the export and its pod, as KEY=VALUE,KEY=VALUE; may be given several times.")
}

// given says whether something to be exported is named.
func (s *source) given() bool { return s.vm+s.snapshot+s.claim != "" }

// export is the VirtualMachineExport that the flags ask for.
func (s *source) export(key client.ObjectKey) (*exportv1.VirtualMachineExport, error) {
	export := &exportv1.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Labels: s.labels, Annotations: s.annotations,
	}}
	named := 0
	for _, one := range []struct{ name, group, kind string }{
		{s.vm, virtv1.SchemeGroupVersion.Group, "VirtualMachine"},
		{s.snapshot, snapshotv1.SchemeGroupVersion.Group, "VirtualMachineSnapshot"},
		{s.claim, corev1.SchemeGroupVersion.Group, "PersistentVolumeClaim"},
	} {
		if one.name != "" {
			named++
			export.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &one.group, Kind: one.kind, Name: one.name}
		}
	}
	switch {
	case named == 0:
		return nil, errors.New("need to specify export kind when attempting to create a VirtualMachineExport [--pvc|--vm|--snapshot]")
	case named > 1:
		return nil, errors.New("--pvc, --vm and --snapshot contradict each other: give one of them")
	case s.ttl != "":
		lifetime, err := time.ParseDuration(s.ttl)
		if err != nil || lifetime <= 0 {
			return nil, fmt.Errorf("invalid --ttl %q: write a time such as 30m", s.ttl)
		}
		export.Spec.TTLDuration = &metav1.Duration{Duration: lifetime}
	}
	return export, nil
}

func newCreateCommand(cluster Cluster) *cobra.Command {
	var from source
	command := &cobra.Command{
		Use: "create NAME", Short: "Lets the volumes of a VM, of a snapshot, or one claim be downloaded",
		Long: `Makes a VirtualMachineExport. Its status.links say where the volumes are when it is ready, status.tokenSecretRef which Secret
has the token that they are given out for.`,
		Example: `  # Export the volumes of the stopped VM "web":
  virtctl vmexport create web-disks --vm=web
  # Those of a snapshot, for ten minutes:
  virtctl vmexport create web-disks --snapshot=web-before --ttl=10m
  # One claim:
  virtctl vmexport create data --pvc=data`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, key, err := reach(cluster, args[0])
			if err != nil {
				return err
			}
			export, err := from.export(key)
			if err != nil {
				return err
			}
			err = c.Create(cmd.Context(), export)
			switch {
			case apierrors.IsAlreadyExists(err):
				return fmt.Errorf("VirtualMachineExport '%s' already exists", key)
			case err != nil:
				return fmt.Errorf("creating VirtualMachineExport %s: %w", key, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), created, key)
			return nil
		},
	}
	from.addFlags(command.Flags())
	return command
}

// What is printed, in the field's own words.
const (
	created = "VirtualMachineExport '%s' created succesfully\n" //nolint:misspell // as the field has it
	deleted = "VirtualMachineExport '%s' deleted succesfully\n" //nolint:misspell // as the field has it
	absent  = "VirtualMachineExport '%s' does not exist\n"
)

func newDeleteCommand(cluster Cluster) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Ends an export",
		Long: "Deletes a VirtualMachineExport, and with it what was made for it. Its volumes stay, but for the copies of a snapshot's.",
		Example: `  # End the export "web-disks":
  virtctl vmexport delete web-disks`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, key, err := reach(cluster, args[0])
			if err != nil {
				return err
			}
			text, err := remove(cmd.Context(), c, key)
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), text, key)
			}
			return err
		},
	}
}

// remove deletes the export, and returns what is said of that.
func remove(ctx context.Context, c client.Client, key client.ObjectKey) (string, error) {
	export := &exportv1.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := c.Delete(ctx, export)
	switch {
	case apierrors.IsNotFound(err):
		return absent, nil
	case err != nil:
		return "", fmt.Errorf("deleting VirtualMachineExport %s: %w", key, err)
	}
	return deleted, nil
}

// reach returns a client of the cluster, and the name with the namespace.
func reach(cluster Cluster, name string) (client.WithWatch, client.ObjectKey, error) {
	c, err := cluster.Client()
	if err != nil {
		return nil, client.ObjectKey{}, err //nolint:wrapcheck // it says what it was doing
	}
	namespace, err := cluster.Namespace()
	if err != nil {
		return nil, client.ObjectKey{}, err //nolint:wrapcheck // as above
	}
	return c, client.ObjectKey{Namespace: namespace, Name: name}, nil
}
