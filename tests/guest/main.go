// Command guest builds the disks of test guests and prints their paths.
//
//	go run ./tests/guest build [tiny|small|debian] [--update-locks]
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/tests/guest/recipe"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "guest", Short: "Builds disks of test guests", SilenceUsage: true, SilenceErrors: true}
	var update bool
	build := &cobra.Command{
		Use: "build [name...]", Short: "Builds the named guests, or all, and prints the path of each disk", Example: "  go run ./tests/guest build tiny",
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args, update) },
	}
	build.Flags().BoolVar(&update, "update-locks", false, "take today's Debian versions and rewrite tests/guest/locks")
	root.AddCommand(build)
	return root
}

func run(ctx context.Context, names []string, update bool) error {
	locks, err := recipe.Locks()
	if err != nil {
		return err
	}
	guests := recipe.Guests()
	for _, n := range names {
		if !slices.ContainsFunc(guests, func(g recipe.Guest) bool { return g.Name == n }) {
			return fmt.Errorf("no guest is called %q: name tiny, small or debian", n)
		}
	}
	for _, s := range plan(guests, names, update) {
		disk, err := s.Build(ctx, locks, s.update)
		if err != nil {
			return err
		}
		fmt.Println(strings.TrimSpace(filepath.Clean(disk)))
	}
	return nil
}

// step is the build of one guest, before which today's versions are taken into its lock when update says so.
type step struct {
	recipe.Guest
	update bool
}

// plan says how the guests of those names, or all, are built. A lock that guests share is updated once: one of them would else be of
// versions that are no longer in it.
func plan(guests []recipe.Guest, names []string, update bool) []step {
	var steps []step
	updated := map[string]bool{}
	for _, g := range guests {
		if len(names) > 0 && !slices.Contains(names, g.Name) {
			continue
		}
		steps = append(steps, step{g, update && !updated[g.Lock()]})
		updated[g.Lock()] = true
	}
	return steps
}
