// Package create has the verbs that print the manifests of new objects: vm, clone, instancetype and
// preference. They reach no cluster.
package create

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/yaml"
)

// suffixSize is the length of the random end of a name.
const suffixSize = 5

// Cluster is what the verbs need to know of the flags that every verb takes.
type Cluster interface {
	// GivenNamespace is the namespace that the user wrote, or "".
	GivenNamespace() string
}

// NewCommand returns the group of verbs.
func NewCommand(cluster Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:   "create",
		Short: "Prints the manifest of a new VirtualMachine, clone, instance type or preference",
		Long: `Prints the manifest of a new VirtualMachine, clone of one, instance type or preference to standard output, for a file in
git or for kubectl. Nothing is created, and no cluster is asked.`,
		Example: `  # Make a VM of a container image:
  virtctl create vm --name web --volume-containerdisk src:quay.io/containerdisks/debian:12 | kubectl create -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(newVMCommand(cluster), newCloneCommand(cluster), newInstancetypeCommand(cluster), newPreferenceCommand(cluster))
	return command
}

// nameOr returns name, or a random one that begins with prefix when there is none.
func nameOr(name, prefix string) string {
	if name == "" {
		return prefix + rand.String(suffixSize)
	}
	return name
}

// write prints object as YAML.
func write(out io.Writer, object any) error {
	data, err := yaml.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding the manifest: %w", err)
	}
	if _, err := out.Write(data); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	return nil
}
