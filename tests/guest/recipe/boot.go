package recipe

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BootFiles returns the kernel and the initial file system on a built guest's disk, for
// booting it without its boot loader.
func BootFiles(ctx context.Context, disk string) (kernel, initrd []byte, err error) {
	if err := requireDiskTools(ctx); err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "slipway-boot-")
	if err != nil {
		return nil, nil, fmt.Errorf("making a folder for the boot files of %s: %w", disk, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	raw := filepath.Join(dir, "disk.raw")
	if _, err := tool(ctx, "qemu-img", "convert", "-O", "raw", disk, raw); err != nil {
		return nil, nil, err
	}
	partition := fmt.Sprintf("%s@@%d", raw, partitionStart)
	if kernel, err = tool(ctx, "mcopy", "-i", partition, "::vmlinuz", "-"); err != nil {
		return nil, nil, err
	}
	initrd, err = tool(ctx, "mcopy", "-i", partition, "::initrd", "-")
	return kernel, initrd, err
}

// tool runs a program of this machine and returns what it writes.
func tool(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MTOOLS_SKIP_CHECK=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w\n%s", name, args, err, said.String())
	}
	return out, nil
}
