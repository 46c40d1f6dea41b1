// Package adm has the verbs by which administrators set up an installation.
package adm

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is what the verbs need of a cluster.
type Cluster interface {
	Namespace() (string, error)
	Client() (client.WithWatch, error)
}

// NewCommand returns the group.
func NewCommand(cluster Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:   "adm",
		Short: "Sets up an installation",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(newLogVerbosity(cluster))
	return command
}
