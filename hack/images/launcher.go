package main

import (
	"context"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-vm/slipway/hack/images/debian"
	"github.com/slipway-vm/slipway/hack/images/tree"
)

// launcherRecipe is the image of the pod that holds a VM: libvirt's daemon with its QEMU driver, QEMU for x86, firmware, qemu-img, swtpm,
// passt and virtiofsd, our virt-launcher, container-disk and virt-probe.
func launcherRecipe() recipe {
	return recipe{
		name: "slipway-launcher",
		base: &baseLayer{
			version: "1", lock: "launcher.txt",
			spec: debian.Spec{
				Suite: "trixie", Essential: true,
				Include: []string{
					"libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-clients", "qemu-system-x86", "seabios", "ovmf", "qemu-utils",
					"swtpm", "swtpm-tools", "passt", "virtiofsd",
				},
			},
			drop: launcherDrop, skip: launcherSkip, files: launcherFiles(),
		},
		top: func(ctx context.Context, b *builder) ([]tree.Entry, error) {
			launcher, err := b.program(ctx, program{name: "virt-launcher", cgo: true})
			if err != nil {
				return nil, err
			}
			disk, err := b.program(ctx, program{name: "container-disk"})
			if err != nil {
				return nil, err
			}
			probe, err := b.program(ctx, program{name: "virt-probe"})
			if err != nil {
				return nil, err
			}
			return []tree.Entry{binary(launcherProgram, launcher), binary("usr/bin/container-disk", disk), binary("usr/bin/virt-probe", probe)}, nil
		},
		finish: addCapabilities,
		config: v1.Config{
			User: "107:107", WorkingDir: "/", Entrypoint: []string{"/usr/bin/virt-launcher"},
			Env: []string{
				"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/var/lib/qemu",
				// libvirt's session mode reads <config>/libvirt/qemu.conf and puts its socket into <runtime>/libvirt.
				"XDG_CONFIG_HOME=/etc", "XDG_RUNTIME_DIR=/var/run", "XDG_CACHE_HOME=/var/run/kubevirt-private",
			},
		},
	}
}

func launcherFiles() []tree.Entry {
	qemuConf := `# A pod is the VM's cage: no cgroups, namespaces or security driver of libvirt's own, and no virtlogd.
cgroup_controllers = []
namespaces = []
security_driver = "none"
stdio_handler = "file"
remember_owner = 0
dynamic_ownership = 0
vnc_listen = "127.0.0.1"
`
	libvirtdConf := `listen_tls = 0
listen_tcp = 0
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "1:stderr"
log_filters = "3:event 4:json 4:qemu_monitor 3:util 4:util.threadjob 3:rpc 3:remote"
host_uuid_source = "machine-id"
`
	own := func(e tree.Entry) tree.Entry { e.UID, e.GID = qemuID, qemuID; return e }
	return append(accounts("/var/lib/qemu"),
		dir("etc/libvirt", 0o755, qemuID), dir("etc/libvirt/qemu", 0o755, qemuID), dir("etc/libvirt/qemu/autostart", 0o755, qemuID),
		own(file("etc/libvirt/qemu.conf", 0o644, qemuConf)), own(file("etc/libvirt/libvirtd.conf", 0o644, libvirtdConf)),
		// libvirt asks for a host identifier; it means nothing in a pod.
		file("etc/machine-id", 0o644, "510bb0a07c1f4d7f8a0e4e6c1d5b3a77\n"),
		dir("var/lib/qemu", 0o770, qemuID), dir("var/lib/libvirt", 0o755, qemuID), dir("var/lib/libvirt/qemu", 0o755, qemuID),
		dir("var/log/libvirt", 0o755, qemuID), dir("var/log/libvirt/qemu", 0o755, qemuID), dir("var/cache/libvirt", 0o755, qemuID),
		dir("run/libvirt", 0o775, qemuID), dir("run/kubevirt", 0o775, qemuID), dir("run/kubevirt-private", 0o775, qemuID),
		dir("run/lock", 0o777|fs.ModeSticky, 0),
		tree.Entry{Path: "etc/resolv.conf", Mode: 0o644}, tree.Entry{Path: "etc/hosts", Mode: 0o644, Data: "127.0.0.1 localhost\n"},
	)
}

// launcherDrop are packages that only installation needs, or desktop and service parts that a pod never starts.
var launcherDrop = []string{
	"apt", "libapt-pkg7.0", "debian-archive-keyring", "sqv", "dpkg", "perl-base", "debconf", "adduser", "passwd", "systemd", "systemd-container", "libsystemd-shared",
	"polkitd", "dbus", "dbus-daemon", "dbus-bin", "dbus-system-bus-common", "dbus-session-bus-common", "libpam-systemd", "logrotate",
	"libpam-modules", "libpam-modules-bin", "libpam-runtime", "libasound2t64", "libasound2-data", "libbrlapi0.8", "libcacard0", "libnss3", "libnspr4",
	"libdb5.3t64", "tar", "gzip", "findutils", "diffutils", "sensible-utils", "gettext-base", "ncurses-bin", "init-system-helpers",
	"libsemanage2", "libsemanage-common", "uidmap", "libsubid5", "mount", "bsdutils", "util-linux", "login.defs",
}

// qemuSkip are firmware of other machines, other emulators, and modules for screens and sound.
var qemuSkip = []string{
	"usr/bin/qemu-system-i386", "usr/bin/qemu-system-x86_64-microvm", "usr/bin/qemu-pr-helper", "usr/bin/qemu-vmsr-helper", "usr/share/qemu/trace-events-all",
	"usr/share/qemu/skiboot.lid", "usr/share/qemu/openbios-*", "usr/share/qemu/slof.bin", "usr/share/qemu/u-boot*", "usr/share/qemu/opensbi-*", "usr/share/qemu/palcode-*",
	"usr/share/qemu/hppa-*", "usr/share/qemu/s390-*", "usr/share/qemu/npcm*", "usr/share/qemu/*.dtb", "usr/share/qemu/QEMU,*", "usr/share/qemu/qemu_vga.ndrv", "usr/share/qemu/vof*",
	"usr/share/qemu/linux-user-vdso*", "usr/lib/x86_64-linux-gnu/qemu/audio-*", "usr/lib/x86_64-linux-gnu/qemu/ui-*", "usr/lib/x86_64-linux-gnu/qemu/chardev-*",
	"usr/lib/x86_64-linux-gnu/qemu/hw-usb-smartcard.so", "usr/lib/x86_64-linux-gnu/qemu/hw-s390x-*", "usr/bin/qemu-nbd", "usr/bin/qemu-storage-daemon", "usr/bin/qemu-io",
}

// launcherSkip is what else a VM's pod never uses.
var launcherSkip = append([]string{
	"usr/share/ovmf", "usr/share/OVMF/*.snakeoil.fd", "usr/share/OVMF/*.strictnx.fd",
	"usr/sbin/libvirt-*", "usr/sbin/arpd", "usr/lib/x86_64-linux-gnu/sasl2/libsasldb*", "usr/bin/virt-[^lq]*",
}, qemuSkip...)
