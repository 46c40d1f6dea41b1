//go:build !containers_image_openpgp

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// runPush runs this program again with the build tags without which the library that copies images needs a C library.
func runPush(ctx context.Context, options pushOptions) error {
	checkout, err := findCheckout()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "run", "-tags", buildTags, "./hack/images", "push",
		"--registry="+options.registry, fmt.Sprintf("--insecure=%t", options.insecure))
	cmd.Dir, cmd.Stdout, cmd.Stderr = checkout, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running the program with its build tags: %w", err)
	}
	return nil
}
