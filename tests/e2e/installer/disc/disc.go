// Package disc makes an installation disc of Debian's installer package, with an answer file in its
// initrd, and serves the installer the packages of this machine's mirror.
package disc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages hold the installer's kernel and initrd, and the boot loader for discs.
var packages = []string{"debian-installer-12-netboot-amd64", "isolinux"}

// Folders of the unpacked packages.
const (
	netboot  = "usr/lib/debian-installer/images/12/amd64/text/debian-installer/amd64"
	isolinux = "usr/lib/ISOLINUX/isolinux.bin"
)

// Build makes the disc in dir and returns its path. preseed goes into the initrd, arguments onto the kernel's line.
func Build(ctx context.Context, dir string, preseed []byte, arguments string) (string, error) {
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
	if err := initrd(ctx, filepath.Join(root, netboot, "initrd.gz"), filepath.Join(files, "initrd.gz"), preseed); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(files, "isolinux.cfg"), []byte(bootMenu(arguments)), 0o644); err != nil {
		return "", fmt.Errorf("writing the boot menu: %w", err)
	}
	image := filepath.Join(dir, "installer.iso")
	return image, run(ctx, dir, "genisoimage", "-quiet", "-r", "-J", "-V", "DEBIAN_INSTALLER", "-b", "isolinux.bin", "-c", "boot.cat",
		"-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", "-o", image, files)
}

// bootMenu begins the installation at once, on the serial console.
func bootMenu(arguments string) string {
	return "serial 0 115200\ndefault install\nlabel install\n  kernel /linux\n" +
		"  append initrd=/initrd.gz auto=true priority=critical DEBIAN_FRONTEND=text console=ttyS0,115200n8 " + arguments + " ---\n"
}

// initrd appends an archive with the answer file to the installer's own; the kernel unpacks both.
func initrd(ctx context.Context, from, to string, preseed []byte) error {
	dir, err := os.MkdirTemp("", "preseed-")
	if err != nil {
		return fmt.Errorf("making a folder for the answer file: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "preseed.cfg"), preseed, 0o644); err != nil {
		return fmt.Errorf("writing the answer file: %w", err)
	}
	pack := exec.CommandContext(ctx, "sh", "-c", "echo preseed.cfg | cpio -o -H newc --quiet | gzip")
	pack.Dir, pack.Stderr = dir, os.Stderr
	extra, err := pack.Output()
	if err != nil {
		return fmt.Errorf("packing the answer file: %w", err)
	}
	base, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("reading the installer's initrd: %w", err)
	}
	if err := os.WriteFile(to, append(base, extra...), 0o644); err != nil {
		return fmt.Errorf("writing the initrd: %w", err)
	}
	return nil
}

// unpacked returns the folder with the content of Debian's packages, which apt fetches when they are not there.
func unpacked(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	root := filepath.Join(cache, "packages")
	switch _, err := os.Stat(root); {
	case err == nil:
		return root, nil
	case !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("looking for the installer's packages: %w", err)
	}
	work, err := os.MkdirTemp(cache, "packages-")
	if err != nil {
		return "", fmt.Errorf("making a folder for the installer's packages: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := run(ctx, work, "apt-get", append([]string{"download", "-qq"}, packages...)...); err != nil {
		return "", fmt.Errorf("%w; is there a mirror of Debian 12 in this machine's apt sources?", err)
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != len(packages) {
		return "", fmt.Errorf("apt-get fetched %d of %d packages (%s)", len(debs), len(packages), strings.Join(packages, ", "))
	}
	for _, deb := range debs {
		if err := run(ctx, work, "dpkg-deb", "-x", deb, "root"); err != nil {
			return "", err
		}
	}
	if err := os.Rename(filepath.Join(work, "root"), root); err != nil {
		return "", fmt.Errorf("keeping the installer's packages: %w", err)
	}
	return root, nil
}

// cacheDir is where packages are kept for the next time.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w", err)
	}
	dir := filepath.Join(base, "slipway/installer")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache folder: %w", err)
	}
	return dir, nil
}

func run(ctx context.Context, dir, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w\n%s", program, err, out)
	}
	return nil
}
