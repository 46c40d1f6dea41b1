package main

import "github.com/spf13/cobra"

// newHoldCommand does nothing until it is told to end: what its pod has mounted stays so.
func newHoldCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hold",
		Short: "Waits for its end, and keeps what its pod has mounted in use",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { <-cmd.Context().Done() },
	}
}
