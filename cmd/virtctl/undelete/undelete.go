// Package undelete has the verb that brings a deleted VirtualMachine back whose volumes were kept.
package undelete

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
	"github.com/slipway-vm/slipway/internal/keep"
)

// Cluster is what the verb needs of a cluster.
type Cluster interface {
	Namespace() (string, error)
	Client() (client.WithWatch, error)
}

// NewCommand returns the verb.
func NewCommand(cluster Cluster) *cobra.Command {
	return &cobra.Command{
		Use: "undelete vm NAME", Short: "Brings back a deleted VM whose volumes were kept",
		Long: `Makes a deleted VirtualMachine again as it was, with the volumes that were kept for it: of a VM that has the annotation
` + keep.AnnotationVolumes + `: "true" when it is deleted. Of several that had the name it is the last.`,
		Example: `  # Bring back the VM "web":
  virtctl undelete vm web`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := subresource.KindOf(args[0])
			if err != nil || of("") != subresource.Machine("") {
				return fmt.Errorf("unsupported resource type '%s'; write vm", args[0])
			}
			namespace, err := cluster.Namespace()
			if err != nil {
				return err //nolint:wrapcheck // it says all
			}
			c, err := cluster.Client()
			if err != nil {
				return err //nolint:wrapcheck // it says all
			}
			if err := bringBack(cmd.Context(), c, namespace, args[1]); err != nil {
				return fmt.Errorf("error bringing back VirtualMachine %s: %w", args[1], err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "VM %s was brought back\n", args[1])
			return nil
		},
	}
}

// bringBack makes the VM of the last record of it.
func bringBack(ctx context.Context, c client.Client, namespace, name string) error {
	records := &appsv1.ControllerRevisionList{}
	if err := c.List(ctx, records, client.InNamespace(namespace), client.MatchingLabels{keep.LabelRecord: "true"}); err != nil {
		return fmt.Errorf("listing the records of deleted VMs in namespace %s: %w", namespace, err)
	}
	var last *appsv1.ControllerRevision
	for i := range records.Items {
		record := &records.Items[i]
		was, err := keep.Recorded(record)
		if err == nil && was.Name == name && (last == nil || last.CreationTimestamp.Before(&record.CreationTimestamp)) {
			last = record
		}
	}
	if last == nil {
		return fmt.Errorf("there is no record of it in namespace %s; a VM is recorded that has the annotation %s: \"true\" when it is deleted", namespace, keep.AnnotationVolumes)
	}
	vm, err := keep.Again(last)
	if err != nil {
		return err //nolint:wrapcheck // it names the record
	}
	if err := c.Create(ctx, vm); err != nil {
		return fmt.Errorf("creating it: %w", err)
	}
	return nil
}
