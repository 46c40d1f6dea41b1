package main

import (
	"context"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-vm/slipway/hack/images/debian"
	"github.com/slipway-vm/slipway/hack/images/tree"
	guests "github.com/slipway-vm/slipway/tests/guest/recipe"
)

// applianceFolder holds libguestfs' fixed appliance in the image.
const applianceFolder = "usr/lib/guestfs-appliance"

// guestfsRecipe is the image of the tasks that change what is in a disk: virt-customize and virt-sysprep with QEMU, qemu-img, the
// appliance that libguestfs boots, and our slipway. It needs no root, no network and no KVM. virtctl guestfs opens a shell in it.
func guestfsRecipe() recipe {
	return recipe{
		name: "slipway-guestfs",
		base: &baseLayer{
			version: "3", lock: "guestfs.txt",
			spec: debian.Spec{
				Suite: "trixie", Essential: true,
				Include: []string{"guestfs-tools", "linux-image-cloud-amd64", "qemu-system-x86", "qemu-utils", "ntfs-3g", "libguestfs-xfs", "libarchive13t64", "zerofree"},
			},
			only: guestfsPackages, skip: append(guestfsSkip, qemuSkip...), files: guestfsFiles(), prepare: makeAppliance,
		},
		top: func(ctx context.Context, b *builder) ([]tree.Entry, error) {
			slipway, err := b.program(ctx, program{name: "slipway"})
			if err != nil {
				return nil, err
			}
			return append(append(fieldPrograms("/usr/bin/slipway"), guestfsShell()...), binary("usr/bin/slipway", slipway)), nil
		},
		config: v1.Config{
			User: "107:107", WorkingDir: "/", Entrypoint: []string{"/usr/bin/slipway"},
			Env: []string{
				"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/var/lib/qemu",
				"LIBGUESTFS_BACKEND=direct", "LIBGUESTFS_PATH=/" + applianceFolder,
			},
		},
	}
}

// guestfsPackages stay in the image; all others serve only to make the appliance.
var guestfsPackages = []string{
	"base-files", "libc-bin", "libc6", "dash", "bash", "coreutils", "grep", "sed", "mawk", "findutils", "tar", "gzip", "xz-utils", "cpio", "file",
	"guestfs-tools", "libguestfs0t64", "libgcc-s1", "qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios", "ipxe-qemu",
	"qemu-utils", "osinfo-db", "procps", "perl-base", // virt-customize's edit runs Perl here, not in the guest
}

// guestfsSkip are tools that need more of Perl or build other people's images, and the parts that the appliance was made of.
var guestfsSkip = []string{
	"usr/bin/virt-builder*", "usr/lib/qemu/qemu-bridge-helper", "usr/share/zoneinfo", "usr/share/xfsprogs", "usr/share/tsk", "usr/bin/virt-make-fs", "usr/bin/virt-win-reg", "usr/bin/virt-p2v*", "usr/bin/virt-index-validate", "etc/virt-builder",
	"usr/lib/x86_64-linux-gnu/guestfs/supermin.d", "usr/lib/modules", "lib/modules", "usr/share/virt-*", "usr/share/guestfs-tools", "appliance.build",
	"usr/lib/x86_64-linux-gnu/perl", "usr/lib/x86_64-linux-gnu/perl5", "usr/share/perl*", "usr/share/fonts", "usr/share/grub", "usr/lib/grub", "usr/share/X11", "usr/lib/syslinux", "usr/lib/SYSLINUX",
	"usr/share/ghostscript", "usr/share/GConf", "usr/share/glib-2.0", "var/lib/dhcp*", "etc/ssh", "etc/lvm", "etc/perl", "etc/initramfs-tools", "etc/kernel", "etc/grub.d", "etc/mdadm",
	"etc/X11", "etc/udev", "etc/dhcp*", "var/lib/initramfs-tools", "initrd.img*", "vmlinuz*", "var/lib/pam", "var/lib/ucf", "var/lib/sgml-base", "var/lib/xml-core",
}

// guestfsShell is what virtctl's verb guestfs, KubeVirt's and ours, has its pods start, and where it has them look for the appliance.
func guestfsShell() []tree.Entry {
	return []tree.Entry{
		file("entrypoint.sh", 0o755, "#!/bin/sh\nexec /bin/bash\n"),
		{Path: "usr/local/lib/guestfs/appliance", Mode: fs.ModeSymlink | 0o777, Data: "/" + applianceFolder},
	}
}

func guestfsFiles() []tree.Entry {
	return append(accounts("/var/lib/qemu"), dir("var/lib/qemu", 0o770, qemuID), dir("var/tmp", 0o777|stickyBit, 0),
		tree.Entry{Path: "etc/resolv.conf", Mode: 0o644}, tree.Entry{Path: "etc/hosts", Mode: 0o644, Data: "127.0.0.1 localhost\n"})
}

// tinyGuestRecipe is a container disk: an image with nothing but the tiny test guest's disk, and what is on it
// for a kernel boot.
func tinyGuestRecipe() recipe {
	return recipe{
		name: "guest-tiny",
		top: func(ctx context.Context, b *builder) ([]tree.Entry, error) {
			locks, err := guests.Locks()
			if err != nil {
				return nil, err
			}
			disk, err := guests.Tiny().Build(ctx, locks, b.options.updateLocks)
			if err != nil {
				return nil, err
			}
			kernel, initrd, err := guests.BootFiles(ctx, disk)
			if err != nil {
				return nil, err
			}
			return []tree.Entry{
				dir("disk", 0o755, qemuID), {Path: "disk/tiny.qcow2", Mode: 0o440, UID: qemuID, GID: qemuID, File: disk},
				dir("boot", 0o755, qemuID), file("boot/vmlinuz", 0o444, string(kernel)), file("boot/initrd", 0o444, string(initrd)),
			}, nil
		},
	}
}
