// Package disc makes an installation disc of Debian's installer package, with an answer file in its
// initrd, and serves the installer the packages of this machine's mirror.
package disc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/slipway-vm/slipway/hack/images/debian"
)

// Of the unpacked packages: the installer's kernel and initrd, and the boot loader for discs.
const (
	netboot  = "usr/lib/debian-installer/images/" + number + "/amd64/text/debian-installer/amd64"
	isolinux = "usr/lib/ISOLINUX/isolinux.bin"
)

// Build makes the disc in dir and returns its path. preseed is the answer file.
func Build(ctx context.Context, dir string, preseed []byte) (string, error) {
	needs := map[string]string{"/usr/bin/genisoimage": "genisoimage", "/usr/bin/cpio": "cpio", "/usr/sbin/depmod": "kmod"}
	if err := debian.Require(ctx, needs); err != nil {
		return "", fmt.Errorf("preparing this machine: %w", err)
	}
	root, err := unpacked(ctx)
	if err != nil {
		return "", err
	}
	files := filepath.Join(dir, "disc")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return "", fmt.Errorf("making the disc's folder: %w", err)
	}
	for name, from := range map[string]string{
		"linux": filepath.Join(netboot, "linux"), "ldlinux.c32": filepath.Join(netboot, "boot-screens/ldlinux.c32"), "isolinux.bin": isolinux,
	} {
		data, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			return "", fmt.Errorf("taking %s from Debian's packages: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(files, name), data, 0o644); err != nil {
			return "", fmt.Errorf("writing %s: %w", name, err)
		}
	}
	if err := initrd(ctx, root, filepath.Join(files, "initrd.gz"), preseed); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(files, "isolinux.cfg"), []byte(bootMenu), 0o644); err != nil {
		return "", fmt.Errorf("writing the boot menu: %w", err)
	}
	image := filepath.Join(dir, "installer.iso")
	_, err = run(ctx, dir, "genisoimage", "-quiet", "-r", "-J", "-V", "DEBIAN_INSTALLER", "-b", "isolinux.bin", "-c", "boot.cat",
		"-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", "-o", image, files)
	return image, err
}

// bootMenu begins the installation at once, on the serial console.
const bootMenu = "serial 0 115200\ndefault install\nlabel install\n  kernel /linux\n" +
	"  append initrd=/initrd.gz auto=true priority=critical DEBIAN_FRONTEND=text DEBCONF_DEBUG=5 console=ttyS0,115200n8 ---\n"

// initrd appends an archive with the answer file to the installer's own; the kernel unpacks both.
func initrd(ctx context.Context, root, to string, preseed []byte) error {
	base, err := os.ReadFile(filepath.Join(root, netboot, "initrd.gz"))
	if err != nil {
		return fmt.Errorf("reading the installer's initrd: %w", err)
	}
	extra, err := os.MkdirTemp("", "initrd-")
	if err != nil {
		return fmt.Errorf("making a folder for the initrd: %w", err)
	}
	defer func() { _ = os.RemoveAll(extra) }()
	if err := components(ctx, root, extra); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(extra, "preseed.cfg"), append(preseed, choice...), 0o644); err != nil {
		return fmt.Errorf("writing the answer file: %w", err)
	}
	archive, err := run(ctx, extra, "sh", "-c", "find . -mindepth 1 | cpio -o -H newc -R 0:0 --quiet | gzip")
	if err != nil {
		return fmt.Errorf("packing the initrd: %w", err)
	}
	if err := os.WriteFile(to, append(base, archive...), 0o644); err != nil {
		return fmt.Errorf("writing the initrd: %w", err)
	}
	return nil
}

// run runs a program in dir and returns its standard output.
func run(ctx context.Context, dir, program string, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir, command.Stderr = dir, os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", program, err)
	}
	return out, nil
}
