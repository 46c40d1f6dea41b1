package main

import (
	"context"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/debian"
	"github.com/slipway-vm/slipway/hack/images/oci"
	"github.com/slipway-vm/slipway/hack/images/tree"
)

// recipe says how one image is made: a base layer from Debian packages (optional) and a top layer of our own files.
type recipe struct {
	// name is the image's, below registry.local.
	name string
	// base is the lower layer; nil for an image from scratch.
	base *baseLayer
	// top lists the files of the upper layer.
	top func(ctx context.Context, b *builder) ([]tree.Entry, error)
	// finish, when set, adds to the upper layer what the image itself finds out.
	finish func(ctx context.Context, b *builder, base oci.Layer, top []tree.Entry) ([]tree.Entry, error)
	// config is what a container of the image runs as.
	config v1.Config
}

// baseLayer is a Debian root file system cut down to what an image needs.
type baseLayer struct {
	// version is raised when code that makes the layer changes in a way that nothing else of its key shows.
	version string
	// lock is the lock file's name below hack/images/locks.
	lock string
	// spec says which packages are locked and installed.
	spec debian.Spec
	// drop names packages that are needed only for installing, or only by parts that are left out.
	drop []string
	// only, when set, is the other way round: of all installed packages just these are kept, with the libraries that they link.
	only []string
	// skip are patterns of files to leave out, besides the usual ones.
	skip []string
	// files are added or replaced.
	files []tree.Entry
	// prepare, when set, works on the installed folder before it is packed.
	prepare func(ctx context.Context, dir cache.Dir, root string, lock *debian.Lock) error
}

func recipes() []recipe {
	return []recipe{slipwayRecipe(), launcherRecipe(), guestfsRecipe(), tinyGuestRecipe()}
}

// usualSkips leaves out of every root file system: documentation (licences stay), translations, caches, logs, and what is particular
// to one machine or one run.
var usualSkips = []string{
	"dev/**", "proc/**", "sys/**", "run/**", "tmp/**", "var/tmp/**", "var/cache/**", "var/log/**", "var/lib/apt", "var/lib/dpkg/info",
	"var/lib/dpkg/*-old", "var/lib/dpkg/lock*", "var/lib/dpkg/triggers", "var/lib/dpkg/updates", "var/lib/dpkg/alternatives",
	"var/lib/systemd", "var/backups", "boot", "media", "etc/machine-id", "etc/hostname", "etc/resolv.conf", "etc/*-", "etc/apt", "etc/cron.*",
	"etc/init.d", "etc/rc?.d", "etc/systemd", "etc/logrotate.d", "etc/apparmor.d", "etc/default/grub*",
	"usr/share/doc/*/[^c]*", "usr/share/doc/*/c[^o]*", "usr/share/doc/*/con*", "usr/share/man", "usr/share/info", "usr/share/locale",
	"usr/share/lintian", "usr/share/bug", "usr/share/bash-completion", "usr/share/zsh", "usr/share/applications", "usr/share/icons",
	"usr/share/polkit-1", "usr/share/dbus-1", "usr/share/apport", "usr/share/menu", "usr/share/pixmaps", "usr/share/systemtap", "usr/share/initramfs-tools",
	"usr/lib/systemd", "usr/lib/sysusers.d", "usr/lib/tmpfiles.d", "usr/lib/sysctl.d", "usr/lib/udev", "usr/lib/apt", "usr/lib/dpkg",
	"usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/audit", "usr/include", "usr/lib/python3*", "usr/share/python3",
	"usr/share/gettext", "usr/share/augeas/lenses/dist/tests",
}

const (
	// qemuID is the user and group that everything of a VM runs as.
	qemuID = 107
)

func dir(path string, mode fs.FileMode, id int) tree.Entry {
	return tree.Entry{Path: path, Mode: fs.ModeDir | mode, UID: id, GID: id}
}

func file(path string, mode fs.FileMode, data string) tree.Entry {
	return tree.Entry{Path: path, Mode: mode, Data: data}
}

func binary(path, from string) tree.Entry {
	return tree.Entry{Path: path, Mode: 0o755, File: from}
}

// accounts are /etc/passwd and /etc/group of every image.
func accounts(home string) []tree.Entry {
	passwd := "root:x:0:0:root:/root:/bin/sh\n" +
		"qemu:x:107:107:qemu:" + home + ":/bin/sh\n" +
		"slipway:x:1001:1001:slipway:/tmp:/bin/sh\n" +
		"libvirt-qemu:x:64055:36:Libvirt Qemu:/var/lib/libvirt:/usr/sbin/nologin\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group := "root:x:0:\ntty:x:5:\ndisk:x:6:\nkvm:x:36:qemu,libvirt-qemu\nqemu:x:107:\nslipway:x:1001:\nlibvirt-qemu:x:64055:\nnogroup:x:65534:\n"
	return []tree.Entry{
		file("etc/passwd", 0o644, passwd), file("etc/group", 0o644, group),
		file("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n"),
		{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}
}
