package recipe

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-vm/slipway/hack/images/debian"
)

//go:embed debian/setup
var debianSetup string

//go:embed debian/init
var debianInit string

// debianRootUUID names the root file system; seeds and boot configuration find it by this.
const debianRootUUID = "51195a72-de12-4b1e-9d0c-2f6a7c3e8b10"

// debianSize is the disk's virtual size in bytes.
const debianSize = 3 << 30

var debianPackages = []string{
	"linux-image-cloud-amd64/bookworm-backports", "systemd-sysv", "systemd-resolved", "cloud-init", "cloud-guest-utils", "fdisk", "qemu-guest-agent",
	"openssh-server", "iproute2", "iputils-ping", "udev", "dbus", "ca-certificates", "curl", "apt", "debian-archive-keyring", "sudo", "kmod", "procps", "netbase",
	"e2fsprogs", "busybox-static", "less", "libpam-systemd",
}

// debianModules are in the initramfs: what a disk may hang on.
var debianModules = []string{"virtio_pci", "virtio_blk", "virtio_scsi", "sd_mod", "ahci", "ext4", "nvme", "sr_mod", "isofs"}

// Debian is a Debian 12 guest with cloud-init (NoCloud, ConfigDrive), the guest agent and sshd; the kernel is the cloud one from
// backports, which unlike Debian 12's own finds SATA disks.
func Debian() Guest {
	return Guest{
		Name: "debian", Disk: "debian-12.qcow2", locked: "debian",
		spec:   debian.Spec{Suite: "bookworm", Backports: true, Essential: true, Include: debianPackages},
		inputs: []string{"3", debianSetup, debianInit, strings.Join(debianPackages, " "), strings.Join(debianModules, " "), debianBoot, tinyPasswordHash, fmt.Sprint(debianSize)},
		build:  buildDebian,
	}
}

const debianBoot = `PROMPT 0
TIMEOUT 0
DEFAULT linux
LABEL linux
	LINUX /vmlinuz
	INITRD /initrd
	APPEND root=UUID=` + debianRootUUID + ` ro console=tty0 console=ttyS0,115200 quiet loglevel=4 net.ifnames=0 systemd.show_status=false ` + hasty + `
`

func buildDebian(ctx context.Context, s scratch, disk string) error {
	if err := requireDiskTools(ctx); err != nil {
		return err
	}
	root := filepath.Join(s.work, "root")
	if err := debian.Bootstrap(ctx, s.cache, s.lock, debianPackages, root); err != nil {
		return err
	}
	setup := filepath.Join(s.work, "setup")
	if err := os.WriteFile(setup, []byte(debianSetup), 0o755); err != nil {
		return fmt.Errorf("writing the set-up script: %w", err)
	}
	if err := s.run(ctx, setup, root, debianRootUUID, tinyPasswordHash); err != nil {
		return fmt.Errorf("setting up the guest: %w", err)
	}
	initramfs := filepath.Join(s.work, "initrd")
	if err := rootedInitramfs(root, debianModules, filepath.Join(s.work, "initramfs"), initramfs); err != nil {
		return err
	}
	kernel, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(kernel) != 1 {
		return fmt.Errorf("the guest has not one kernel but %v: %w", kernel, err)
	}
	boot := bootFiles{kernel: kernel[0], initramfs: initramfs, config: debianBoot}
	return rootedDisk(ctx, s, boot, root, disk, debianSize)
}

// rootedInitramfs packs into file the initial file system of a guest whose own is on its disk: busybox and the modules of installed.
func rootedInitramfs(installed string, modules []string, root, file string) error {
	for _, d := range []string{"dev", "proc", "sys", "newroot", "usr/bin", "usr/lib/modules"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return fmt.Errorf("laying out the initramfs: %w", err)
		}
	}
	for link, target := range map[string]string{"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			return fmt.Errorf("laying out the initramfs: %w", err)
		}
	}
	busybox, err := os.ReadFile(filepath.Join(installed, "usr", "bin", "busybox"))
	if err != nil {
		return fmt.Errorf("laying out the initramfs: %w", err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/busybox"), busybox, 0o755); err != nil {
		return fmt.Errorf("laying out the initramfs: %w", err)
	}
	for _, applet := range []string{"sh", "mount", "umount", "insmod", "sed", "cat", "findfs", "sleep", "switch_root"} {
		if err := os.Symlink("busybox", filepath.Join(root, "usr/bin", applet)); err != nil {
			return fmt.Errorf("laying out the initramfs: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "init"), []byte(debianInit), 0o755); err != nil {
		return fmt.Errorf("laying out the initramfs: %w", err)
	}
	if err := installModules(installed, root, modules); err != nil {
		return err
	}
	return packInitramfs(root, file)
}
