package main

import (
	"time"

	"github.com/spf13/cobra"
)

// lingering is how long a pod that is told to end stays: an evicted one is to be there until the pod that takes its place
// has the claim, which the claim's driver takes from a node on which no pod has it. It is less than the pod's grace period.
const lingering = 12 * time.Second

// newHoldCommand does nothing until it is told to end: what its pod has mounted stays so.
func newHoldCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hold",
		Short: "Waits for its end, and keeps what its pod has mounted in use",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			<-cmd.Context().Done()
			<-time.After(lingering)
		},
	}
}
