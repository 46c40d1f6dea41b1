package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/oci"
	"github.com/slipway-vm/slipway/hack/images/tree"
)

const (
	// launcherProgram is where the launcher's image has it.
	launcherProgram = "usr/bin/virt-launcher"
	// capabilitiesFile is where the launcher looks for what its QEMU can do under emulation.
	capabilitiesFile = "usr/share/slipway/qemu-capabilities.xml"
	// keptCapabilities is how many versions stay in the cache.
	keptCapabilities = 10
)

// bakeScript runs the launcher ($2) in the root file system $1 as in a pod without KVM, and prints what it found. All mounts and
// processes are of its own namespaces and end with them, however it ends; /run, where libvirt writes, is one of the mounts.
const bakeScript = `
mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t tmpfs -o mode=0755 tmpfs "$1/dev"
for device in null zero random urandom; do
	touch "$1/dev/$device"
	mount --bind "/dev/$device" "$1/dev/$device"
done
mount -t tmpfs -o mode=0755 tmpfs "$1/run"
mkdir -m 0770 "$1/run/libvirt"
touch "$1/run/capabilities.xml"
chown 107:107 "$1/run/libvirt" "$1/run/capabilities.xml"
setpriv --no-new-privs chroot --userspec=107:107 --groups=107 "$1" "/$2" --bake-capabilities /run/capabilities.xml
cat "$1/run/capabilities.xml"
`

// addCapabilities adds to the launcher's top layer what QEMU of its base layer can do under emulation, so that no VM's start asks
// QEMU for it again. The launcher in the top layer finds it out, in the image's own root file system.
func addCapabilities(ctx context.Context, b *builder, base oci.Layer, top []tree.Entry) ([]tree.Entry, error) {
	key, err := capabilitiesKey(base, top)
	if err != nil {
		return nil, err
	}
	file := b.cache.Path("capabilities", key[:16]+".xml")
	content, err := os.ReadFile(file)
	switch {
	case err == nil:
		err = cache.Touch(file)
	case errors.Is(err, fs.ErrNotExist):
		content, err = bakeCapabilities(ctx, b.cache, base, top, file)
	}
	if err != nil {
		return nil, fmt.Errorf("finding out what QEMU can do: %w", err)
	}
	return append(top, tree.Entry{Path: capabilitiesFile, Mode: 0o644, Data: string(content)}), nil
}

// capabilitiesKey covers what the answer depends on: QEMU and libvirt in the base layer, and who asks.
func capabilitiesKey(base oci.Layer, top []tree.Entry) (string, error) {
	parts := []string{"capabilities 1", bakeScript, base.Digest}
	for _, e := range top {
		if e.Path != launcherProgram {
			continue
		}
		sum, err := cache.FileSHA256(e.File)
		if err != nil {
			return "", err
		}
		parts = append(parts, sum)
	}
	return cache.Key(parts...), nil
}

// bakeCapabilities runs the launcher in a copy of the root file system and keeps its answer in file.
func bakeCapabilities(ctx context.Context, dir cache.Dir, base oci.Layer, top []tree.Entry, file string) ([]byte, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a root file system is entered for it, which only root may: run this as root")
	}
	work, remove, err := dir.TempDir("capabilities")
	if err != nil {
		return nil, err
	}
	defer remove()
	root := filepath.Join(work, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return nil, fmt.Errorf("making the root file system: %w", err)
	}
	if err := base.Unpack(ctx, root); err != nil {
		return nil, err
	}
	if err := installLauncher(root, top); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "--pid", "--net", "--ipc", "--fork", "--kill-child", "--",
		"sh", "-euc", bakeScript, "sh", root, launcherProgram)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	var said bytes.Buffer
	cmd.Stderr = &said
	content, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running virt-launcher in the image: %w\n%s", err, said.String())
	}
	if err := checkCapabilities(string(content)); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, said.String())
	}
	return content, keepCapabilities(dir, file, content)
}

func installLauncher(root string, top []tree.Entry) error {
	for _, e := range top {
		if e.Path != launcherProgram {
			continue
		}
		program, err := os.ReadFile(e.File)
		if err != nil {
			return fmt.Errorf("reading the launcher: %w", err)
		}
		if err := os.WriteFile(filepath.Join(root, launcherProgram), program, 0o755); err != nil {
			return fmt.Errorf("installing the launcher: %w", err)
		}
		return nil
	}
	return fmt.Errorf("the image has no %s", launcherProgram)
}

// checkCapabilities refuses an answer that is not for emulation alone: with KVM it would be this machine's, not the image's.
func checkCapabilities(content string) error {
	switch {
	case !strings.Contains(content, "<machine type='tcg' name='pc-q35-"):
		return fmt.Errorf("virt-launcher's answer knows no q35 machine under emulation")
	case strings.Contains(content, "type='kvm'"):
		return fmt.Errorf("virt-launcher's answer is of this machine's KVM, which it must not see")
	}
	return nil
}

func keepCapabilities(dir cache.Dir, file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("keeping the answer: %w", err)
	}
	if err := os.WriteFile(file+".part", content, 0o644); err != nil {
		return fmt.Errorf("keeping the answer: %w", err)
	}
	if err := os.Rename(file+".part", file); err != nil {
		return fmt.Errorf("keeping the answer: %w", err)
	}
	return dir.Prune("capabilities/*.xml", keptCapabilities)
}
