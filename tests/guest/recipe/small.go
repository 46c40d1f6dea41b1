package recipe

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// smallSize is the disk's virtual size in bytes.
const smallSize = 128 << 20

// Small is the tiny guest on a file system of its disk: what is written there stays, and libguestfs's tools take it for a Debian.
func Small() Guest {
	tiny := Tiny()
	inputs := []string{"3", debianInit, debianBoot, strings.Join(debianModules, " "), fmt.Sprint(smallSize)}
	for _, name := range slices.Sorted(maps.Keys(smallTexts)) {
		inputs = append(inputs, name, smallTexts[name])
	}
	return Guest{
		Name: "small", Disk: "small.qcow2", locked: tiny.locked, spec: tiny.spec,
		inputs: append(inputs, tiny.inputs...),
		build:  buildSmall,
	}
}

// smallTexts are what the small guest has beside the tiny one's files, or instead of them. By fstab and os-release libguestfs knows what it is.
var smallTexts = map[string]string{
	"etc/fstab":          "UUID=" + debianRootUUID + " / ext4 defaults,noatime 0 1\n",
	"etc/os-release":     "ID=debian\nNAME=\"Slipway small guest\"\nPRETTY_NAME=\"Slipway small guest 1\"\nVERSION_ID=\"13\"\n",
	"etc/debian_version": "13.0\n",
	"usr/bin/init":       tinyInit,
}

func buildSmall(ctx context.Context, s scratch, disk string) error {
	if err := requireDiskTools(ctx); err != nil {
		return err
	}
	kernel, unpacked, root, err := tinyParts(ctx, s)
	if err != nil {
		return err
	}
	for name, text := range smallTexts {
		file := filepath.Join(root, name)
		if err := os.RemoveAll(file); err != nil { // a link to busybox would be followed
			return fmt.Errorf("making room for %s: %w", name, err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	initramfs := filepath.Join(s.work, "initrd")
	if err := rootedInitramfs(unpacked, debianModules, filepath.Join(s.work, "initramfs"), initramfs); err != nil {
		return err
	}
	return rootedDisk(ctx, s, bootFiles{kernel: kernel, initramfs: initramfs, config: debianBoot}, root, disk, smallSize)
}
