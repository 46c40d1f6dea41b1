// Package cache has the verbs for the step cache: ls and prune.
package cache

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/stepcache"
)

// Cluster is what the verbs need of a cluster.
type Cluster interface {
	Namespace() (string, error)
	Client() (client.WithWatch, error)
}

// NewCommand returns the group of verbs.
func NewCommand(cluster Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:   "cache",
		Short: "Lists and prunes the results of provisioning steps that a namespace keeps",
		Long: `Provisioning tasks keep the disks that their steps leave, so that the next run takes them instead of
doing the steps again. Each entry of this cache is a DataVolume with the label ` + stepcache.LabelState + `.`,
		Args: cobra.NoArgs,
	}
	command.AddCommand(newListCommand(cluster, time.Now), newPruneCommand(cluster, time.Now))
	return command
}

// entries reads the entries of a namespace, or of all when it is empty.
func entries(ctx context.Context, c client.Client, namespace string) ([]stepcache.Entry, error) {
	var volumes cdiv1.DataVolumeList
	err := c.List(ctx, &volumes, client.InNamespace(namespace), client.HasLabels{stepcache.LabelState})
	if err != nil {
		return nil, fmt.Errorf("listing the entries of the step cache: %w", err)
	}
	return stepcache.Entries(volumes.Items), nil
}
