// Command virtctl is the user's program beside kubectl. Each group of verbs has its folder.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/slipway-vm/slipway/cmd/virtctl/help"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	program := help.Program(os.Args[0])
	err := newRootCommand(program).ExecuteContext(ctx)
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.Exited() { // of ssh or scp, which has said why
		os.Exit(ended.ExitCode())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
		os.Exit(1)
	}
}
