package main

import (
	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/internal/stepcache"
)

func newStepCacheCommand() *cobra.Command {
	work := stepcache.Work{}
	cmd := &cobra.Command{
		Use:     "step-cache",
		Short:   "Checks the disk of a step cache's entry, and puts a copy of it into a claim; a task's worker pod runs it",
		Example: "  slipway step-cache --entry /entry/disk.img --digest slipway2:0123… --target /target/disk.img",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return work.Do(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&work.Entry, "entry", "", "path of the entry's disk, a file or a device")
	flags.StringVar(&work.Digest, "digest", "", "digest that the disk must have")
	flags.StringVar(&work.Target, "target", "", "disk file to replace by a copy; empty to check the entry only")
	flags.BoolVar(&work.InPlace, "in-place", false, "write onto the target, a device, what differs; it is half done when this is killed")
	flags.StringVar(&work.Report, "report", "", "file that takes what the work came to, as JSON")
	return cmd
}
