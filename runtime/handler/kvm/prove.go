package kvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Device is the node's device file.
const Device = "/dev/kvm"

// Bound is the time that the proof may take. Hardware needs some milliseconds, a host
// that emulates many times the bound.
const Bound = 2 * time.Second

// Prove runs command, which must call Run and print nothing but its error, and returns
// how long the guest took. An error says why KVM cannot be used.
func Prove(ctx context.Context, command ...string) (time.Duration, error) {
	if len(command) == 0 {
		return 0, errors.New("no command to prove KVM with")
	}
	ctx, stop := context.WithTimeout(ctx, Bound)
	defer stop()
	child := exec.CommandContext(ctx, command[0], command[1:]...)
	child.WaitDelay = time.Second
	var output bytes.Buffer
	child.Stdout, child.Stderr = &output, &output
	begun := time.Now()
	err := child.Run()
	took := time.Since(begun)
	switch {
	case ctx.Err() != nil:
		return took, fmt.Errorf("%s opens but does not run 64-bit guests: %d instructions took over %s", Device, instructions, Bound)
	case err != nil:
		return took, fmt.Errorf("%s cannot be used: %w: %s", Device, err, strings.TrimSpace(output.String()))
	}
	return took, nil
}
