// Package version has the verb that prints the versions of the program and of the cluster's API.
package version

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// Info is a version, as the API serves it.
type Info struct {
	GitVersion   string `json:"gitVersion"`
	GitCommit    string `json:"gitCommit"`
	GitTreeState string `json:"gitTreeState"`
	BuildDate    string `json:"buildDate"`
	GoVersion    string `json:"goVersion"`
	Compiler     string `json:"compiler"`
	Platform     string `json:"platform"`
}

// NewCommand returns the verb of the program whose own version is program.
func NewCommand(cluster subresource.Cluster, program string) *cobra.Command {
	var clientOnly bool
	command := &cobra.Command{
		Use:   "version",
		Short: "Prints the versions of the program and of the cluster's API",
		Example: `  # Both versions:
  virtctl version

  # That of the program, without asking a cluster:
  virtctl version --client`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			own := Info{GitVersion: program, GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH}
			fmt.Fprintf(cmd.OutOrStdout(), "Client Version: %#v\n", own)
			if clientOnly {
				return nil
			}
			server, err := ofServer(cmd.Context(), cluster)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Server Version: %#v\n", server)
			return nil
		},
	}
	command.Flags().BoolVarP(&clientOnly, "client", "c", false, "Print the program's version only.")
	return command
}
