package recipe

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/slipway-vm/slipway/hack/images/cpio"
	"github.com/slipway-vm/slipway/hack/images/debian"
)

// TinyPassword is root's password in the tiny guest, on the serial console and by SSH. It is for tests only.
const TinyPassword = "slipway"

// tinyPasswordHash is TinyPassword as crypt(3) wants it.
const tinyPasswordHash = "$6$slipway$84nNhQqRINroTILs9MQGdUkBPYWhkehK0W2fiwnY6j.pyEEr/lN1Y6fjZEyKQBE.ciUr6PXvNhrzgY5pqThrE1"

//go:embed tiny/init
var tinyInit string

//go:embed tiny/rc
var tinyRC string

//go:embed tiny/seed
var tinySeed string

//go:embed tiny/udhcpc
var tinyUdhcpc string

// tinyPackages are unpacked into the tiny guest.
var tinyPackages = []string{
	"busybox-static", "dropbear-bin", "libtomcrypt1", "libtommath1", "libgmp10", "libcrypt1", "libc6", "zlib1g",
	"qemu-guest-agent", "libglib2.0-0t64", "libpcre2-8-0", "liburing2", "libudev1", "libnuma1", "libcap2", "libgcc-s1", "libffi8", "libatomic1",
}

// tinyModules are loaded at boot, in this order; what the kernel has built in is skipped.
var tinyModules = []string{
	"virtio_pci", "virtio_console", "virtio_net", "af_packet", "virtio_blk", "sd_mod", "sr_mod", "ahci", "virtio_scsi", "virtio-rng", "button", "evdev",
	"isofs", "vfat", "nls_cp437", "nls_iso8859-1", "nls_ascii", "nls_utf8", "ext4", "virtio_balloon", "e1000e", "e1000", "virtio_input", "virtiofs",
	"vmw_vsock_virtio_transport", "virtio_mem",
}

// tinyFiles are the programs of those packages that are kept.
var tinyFiles = []string{
	"usr/bin/busybox", "usr/sbin/dropbear", "usr/bin/dropbearkey", "usr/sbin/qemu-ga", "usr/lib64/ld-linux-x86-64.so.2",
}

// tinyLibraries are the libraries that they link.
var tinyLibraries = []string{
	"libc.so.6", "libm.so.6", "libtomcrypt.so.1", "libtommath.so.1", "libgmp.so.10", "libcrypt.so.1", "libz.so.1", "libglib-2.0.so.0", "libgmodule-2.0.so.0",
	"libpcre2-8.so.0", "liburing.so.2", "libudev.so.1", "libnuma.so.1", "libcap.so.2", "libatomic.so.1", "libgcc_s.so.1",
}

// Tiny is the guest that boots to its agent within seconds: Debian's cloud kernel, busybox, dropbear and qemu-guest-agent in an initramfs.
func Tiny() Guest {
	return Guest{
		Name: "tiny", Disk: "tiny.qcow2", locked: "tiny",
		spec:   tinySpec(),
		inputs: []string{"7", tinyInit, tinyRC, tinySeed, tinyUdhcpc, tinyPasswordHash, strings.Join(tinyModules, " "), strings.Join(tinyLibraries, " "), bootConfig},
		build:  buildTiny,
	}
}

func tinySpec() debian.Spec {
	return debian.Spec{
		Suite: "trixie", Include: []string{"linux-image-cloud-amd64", "busybox-static", "dropbear-bin", "qemu-guest-agent"},
		Keep: append([]string{`linux-image-[0-9].*-cloud-amd64`}, quoted(tinyPackages)...),
	}
}

func buildTiny(ctx context.Context, s scratch, disk string) error {
	if err := requireDiskTools(ctx); err != nil {
		return err
	}
	kernel, _, root, err := tinyParts(ctx, s)
	if err != nil {
		return err
	}
	initramfs := filepath.Join(s.work, "initrd")
	if err := packInitramfs(root, initramfs); err != nil {
		return err
	}
	return bootDisk(ctx, s, bootFiles{kernel: kernel, initramfs: initramfs, config: bootConfig}, disk)
}

// tinyParts unpacks the packages and lays out the root file system; it returns the kernel's file and both folders.
func tinyParts(ctx context.Context, s scratch) (kernel, unpacked, root string, err error) {
	files, err := debian.Fetch(ctx, s.cache, s.lock)
	if err != nil {
		return "", "", "", err
	}
	unpacked, root = filepath.Join(s.work, "unpacked"), filepath.Join(s.work, "root")
	var kernelPackage string
	for name := range files {
		if strings.HasPrefix(name, "linux-image-") {
			kernelPackage = name
		}
	}
	if err := debian.Extract(ctx, files, append([]string{kernelPackage}, tinyPackages...), unpacked); err != nil {
		return "", "", "", err
	}
	if err := tinyRoot(ctx, unpacked, root); err != nil {
		return "", "", "", err
	}
	kernels, err := filepath.Glob(filepath.Join(unpacked, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return "", "", "", fmt.Errorf("package %s has not one kernel but %v: %w", kernelPackage, kernels, err)
	}
	return kernels[0], unpacked, root, nil
}

// tinyRoot lays out the root file system that the kernel runs from memory.
func tinyRoot(ctx context.Context, unpacked, root string) error {
	for _, d := range []string{"dev", "proc", "sys", "run", "tmp", "mnt", "root/.ssh", "etc/dropbear", "usr/bin", "usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib/modules", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return fmt.Errorf("laying out the guest: %w", err)
		}
	}
	for link, target := range map[string]string{"bin": "usr/bin", "sbin": "usr/bin", "usr/sbin": "bin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "../run"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			return fmt.Errorf("laying out the guest: %w", err)
		}
	}
	if err := copyPrograms(unpacked, root); err != nil {
		return err
	}
	if err := linkApplets(ctx, root); err != nil {
		return err
	}
	if err := installModules(unpacked, root, tinyModules); err != nil {
		return err
	}
	return writeTexts(root)
}

func copyPrograms(unpacked, root string) error {
	names := append([]string(nil), tinyFiles...)
	for _, l := range tinyLibraries {
		names = append(names, "usr/lib/x86_64-linux-gnu/"+l)
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(unpacked, name))
		if err != nil {
			return fmt.Errorf("copying %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(root, name), data, 0o755); err != nil {
			return fmt.Errorf("copying %s: %w", name, err)
		}
	}
	return nil
}

// linkApplets makes one link per busybox command, in usr/bin only, where no real program has the name.
func linkApplets(ctx context.Context, root string) error {
	out, err := exec.CommandContext(ctx, filepath.Join(root, "usr/bin/busybox"), "--list").Output()
	if err != nil {
		return fmt.Errorf("listing busybox's commands: %w", err)
	}
	for applet := range strings.FieldsSeq(string(out)) {
		link := filepath.Join(root, "usr/bin", applet)
		if _, err := os.Lstat(link); err == nil {
			continue
		}
		if err := os.Symlink("/usr/bin/busybox", link); err != nil {
			return fmt.Errorf("linking %s: %w", applet, err)
		}
	}
	return nil
}

func installModules(unpacked, root string, names []string) error {
	set, err := findModules(filepath.Join(unpacked, "usr", "lib", "modules"))
	if err != nil {
		return err
	}
	modules, err := set.load(names)
	if err != nil {
		return err
	}
	var order strings.Builder
	for _, m := range modules {
		fmt.Fprintf(&order, "%s\n", m.name)
		for suffix, data := range map[string][]byte{".ko": m.data, ".sig": m.signature} {
			if err := os.WriteFile(filepath.Join(root, "lib", "modules", m.name+suffix), data, 0o644); err != nil {
				return fmt.Errorf("installing module %s: %w", m.name, err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(root, "lib", "modules", "order"), []byte(order.String()), 0o644); err != nil {
		return fmt.Errorf("installing modules: %w", err)
	}
	return nil
}

func writeTexts(root string) error {
	texts := []struct {
		path string
		mode os.FileMode
		text string
	}{
		{"init", 0o755, tinyInit},
		{"etc/rc", 0o755, tinyRC},
		{"usr/bin/seed", 0o755, tinySeed},
		{"usr/share/udhcpc", 0o755, tinyUdhcpc},
		{"etc/inittab", 0o644, "::sysinit:/etc/rc\nttyS0::respawn:/sbin/getty -L 115200 ttyS0 vt100\n::ctrlaltdel:/sbin/reboot\n::shutdown:/bin/sync\n::shutdown:/bin/umount -a -r\n"},
		{"etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n"},
		{"etc/shadow", 0o600, "root:" + tinyPasswordHash + ":20000:0:99999:7:::\n"},
		{"etc/group", 0o644, "root:x:0:\n"},
		{"etc/shells", 0o644, "/bin/sh\n"},
		{"etc/hostname", 0o644, "tiny\n"},
		{"etc/hosts", 0o644, "127.0.0.1 localhost\n"},
		{"etc/issue", 0o644, "Slipway tiny guest, log in as root with password " + TinyPassword + "\n\n"},
		{"etc/os-release", 0o644, "ID=slipway-tiny\nNAME=\"Slipway tiny guest\"\nPRETTY_NAME=\"Slipway tiny guest 1\"\nVERSION_ID=1\n"},
		{"etc/acpi/PWRF/00000080", 0o755, "#!/bin/sh\nexec /sbin/poweroff\n"},
		{"etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"},
		{"usr/bin/mkfs.ext2", 0o755, "#!/bin/sh\nexec mke2fs \"$@\"\n"},
		{"usr/bin/chpasswd", 0o755, "#!/bin/sh\n# Called by the guest agent, with user:password on each line.\nwhile IFS=: read -r user password; do\n\tprintf '%s\\n%s\\n' \"$password\" \"$password\" | passwd \"$user\" || exit 1\ndone\n"},
		{"usr/bin/shutdown", 0o755, "#!/bin/sh\n# Called by the guest agent: -P off, -r reboot, -H halt.\ncase \"$*\" in *-r*) exec reboot ;; *-H*) exec halt ;; *) exec poweroff ;; esac\n"},
	}
	for _, t := range texts {
		file := filepath.Join(root, t.path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("writing %s: %w", t.path, err)
		}
		if err := os.WriteFile(file, []byte(t.text), t.mode); err != nil {
			return fmt.Errorf("writing %s: %w", t.path, err)
		}
	}
	return nil
}

func packInitramfs(root, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("making the initramfs: %w", err)
	}
	zip, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
	if err != nil {
		return errors.Join(fmt.Errorf("compressing the initramfs: %w", err), f.Close())
	}
	if err := errors.Join(cpio.Write(zip, root), zip.Close(), f.Close()); err != nil {
		return fmt.Errorf("making the initramfs: %w", err)
	}
	return nil
}

func quoted(names []string) []string {
	patterns := make([]string, 0, len(names))
	for _, n := range names {
		patterns = append(patterns, strings.ReplaceAll(n, ".", `\.`))
	}
	return patterns
}
