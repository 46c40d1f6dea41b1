package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/slipway-vm/slipway/hack/images/debian"
)

// buildTags select the parts of containers/image and of the standard library that need no C
// library; the Makefile's are the same, for tests share what is compiled.
const buildTags = "containers_image_openpgp exclude_graphdriver_btrfs containers_image_docker_daemon_stub containers_image_storage_stub netgo osusergo"

// program is one Go program of this module.
type program struct {
	// name is the folder below cmd.
	name string
	// cgo is set for the one program that links libvirt.
	cgo bool
}

// goBuild compiles a program to bin/image/<name> of the checkout, always the same bytes for the same source.
func goBuild(ctx context.Context, checkout string, p program) (string, error) {
	if _, err := os.Stat(filepath.Join(checkout, "cmd", p.name)); err != nil {
		return "", fmt.Errorf("program cmd/%s: %w", p.name, err)
	}
	cgo := "0"
	if p.cgo {
		cgo = "1"
		needs := map[string]string{"/usr/include/libvirt/libvirt.h": "libvirt-dev", "/usr/bin/pkg-config": "pkg-config", "/usr/bin/gcc": "gcc"}
		if err := debian.Require(ctx, needs); err != nil {
			return "", err
		}
	}
	out := filepath.Join(checkout, "bin", "image", p.name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", buildTags, "-ldflags", "-s -w", "-o", out, "./cmd/"+p.name)
	cmd.Dir = checkout
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOOS=linux", "GOARCH=amd64")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling cmd/%s: %w\n%s", p.name, err, output)
	}
	return out, nil
}
