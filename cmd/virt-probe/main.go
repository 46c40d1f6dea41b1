// Command virt-probe is what the kubelet runs in the compute container for a probe that
// goes through the guest's agent. It asks the launcher, and fails when the guest is not
// well. It is a program of its own so that no probe loads libvirt.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/slipway-vm/slipway/runtime/launcher/probe"
)

func main() {
	socket := flag.String("socket", "", "the launcher's socket for probes")
	kind := flag.String("kind", string(probe.Readiness), "liveness or readiness")
	timeout := flag.Int("timeout-seconds", 1, "how long the guest may take")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "virt-probe --socket PATH --kind KIND [--timeout-seconds N] [-- COMMAND ARGS...]; without a command it pings the guest's agent")
		flag.PrintDefaults()
	}
	flag.Parse()
	question := probe.Question{Kind: probe.Kind(*kind), Command: flag.Args(), TimeoutSeconds: int32(*timeout)} //nolint:gosec // from an int32 of the VMI
	answer, err := probe.Ask(context.Background(), *socket, question)
	if err != nil {
		fmt.Fprintln(os.Stderr, "virt-probe:", err)
		os.Exit(1)
	}
	if !answer.Healthy {
		fmt.Fprintln(os.Stderr, answer.Why)
		os.Exit(1)
	}
}
