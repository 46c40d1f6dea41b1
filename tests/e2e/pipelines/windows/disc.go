// Package windows makes a disc that behaves towards Slipway as a Windows installation disc
// does, for rehearsals of the pipelines that install and customize Windows. No Windows is on
// it: it is Linux with one script, init, that looks for the answer file, the drivers' disc
// and the root disk, and panics when something is missing.
package windows

import (
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/cpio"
	"github.com/slipway-vm/slipway/hack/images/debian"
)

//go:embed init
var program string

//go:embed packages.txt
var packages string

// modules are loaded at boot in this order, each after what it needs.
var modules = []string{
	"pvpanic", "pvpanic-mmio", "virtio_blk", "scsi_common", "scsi_mod", "libata", "libahci", "ahci", "cdrom", "sr_mod",
	"isofs", "fat", "vfat", "nls_cp437", "nls_ascii", "nls_iso8859-1", "nls_utf8",
}

// arguments are the kernel's; some save seconds under emulation.
const arguments = "console=ttyS0,115200 quiet loglevel=4 nokaslr mitigations=off random.trust_cpu=on no_timer_check clocksource=acpi_pm tsc=unstable " +
	"cryptomgr.notests rcupdate.rcu_expedited=1 standin="

// bootFolder holds the boot files for EFI, with and without "Press any key".
const bootFolder = "efi/microsoft/boot/"

// builder makes a disc in the folder dir.
type builder struct {
	dir string
	// packages is the folder with the unpacked packages, initrd what the kernel unpacks.
	packages, initrd string
}

// Build makes the disc in dir and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	err := debian.Require(ctx, map[string]string{
		"/usr/bin/objcopy": "binutils", "/usr/bin/mcopy": "mtools", "/usr/sbin/mkfs.vfat": "dosfstools", "/usr/bin/genisoimage": "genisoimage", "/usr/bin/dpkg-deb": "dpkg",
	})
	if err != nil {
		return "", err
	}
	b := builder{dir: dir, packages: filepath.Join(dir, "packages"), initrd: filepath.Join(dir, "initrd")}
	for _, step := range []func(context.Context) error{b.unpack, b.packInitrd, b.layOut} {
		if err := step(ctx); err != nil {
			return "", fmt.Errorf("making the stand-in for a Windows disc: %w", err)
		}
	}
	image := filepath.Join(dir, "windows.iso")
	return image, b.run(ctx, "genisoimage", "-quiet", "-iso-level", "4", "-J", "-joliet-long", "-udf", "-V", "STAND_IN",
		"-b", "boot/etfsboot.com", "-no-emul-boot", "-boot-load-size", "8", "-eltorito-alt-boot", "-e", bootFolder+"efisys.bin", "-no-emul-boot",
		"-o", image, filepath.Join(dir, "disc"))
}

// unpack unpacks kernel, busybox and the stub that makes one EFI program of kernel and initrd.
func (b builder) unpack(ctx context.Context) error {
	lock, err := debian.ParseLock(strings.NewReader(packages))
	if err != nil {
		return fmt.Errorf("reading packages.txt: %w", err)
	}
	dir, err := cache.Default()
	if err != nil {
		return err
	}
	files, err := debian.Fetch(ctx, dir, lock)
	if err != nil {
		return err
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	return debian.Extract(ctx, files, names, b.packages)
}

// packInitrd packs busybox, modules and the program.
func (b builder) packInitrd(context.Context) error {
	root := filepath.Join(b.dir, "root")
	for _, folder := range []string{"bin", "dev", "proc", "sys", "mnt", "disk", "modules"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			return fmt.Errorf("laying out the initrd: %w", err)
		}
	}
	busybox, err := os.ReadFile(filepath.Join(b.packages, "usr/bin/busybox"))
	if err != nil {
		return fmt.Errorf("taking busybox from its package: %w", err)
	}
	if err := write(root, map[string][]byte{"bin/busybox": busybox, "init": []byte(program)}); err != nil {
		return err
	}
	if err := b.addModules(root); err != nil {
		return err
	}
	file, err := os.Create(b.initrd)
	if err != nil {
		return fmt.Errorf("making the initrd: %w", err)
	}
	zip, err := zstd.NewWriter(file, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
	if err != nil {
		return errors.Join(fmt.Errorf("compressing the initrd: %w", err), file.Close())
	}
	return errors.Join(cpio.Write(zip, root), zip.Close(), file.Close())
}

func (b builder) addModules(root string) error {
	found, err := filepath.Glob(filepath.Join(b.packages, "usr/lib/modules/*/kernel"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("the kernel's package has %d folders of modules (%w)", len(found), err)
	}
	files := map[string]string{}
	err = filepath.WalkDir(found[0], func(path string, _ os.DirEntry, err error) error {
		files[strings.TrimSuffix(filepath.Base(path), ".ko.xz")] = path
		return err
	})
	if err != nil {
		return fmt.Errorf("listing modules: %w", err)
	}
	for i, name := range modules {
		path, ok := files[name]
		if !ok {
			return fmt.Errorf("the kernel's package has no module %s; take it from the list when it is built in now", name)
		}
		data, err := readModule(path)
		if err != nil {
			return fmt.Errorf("unpacking module %s: %w", name, err)
		}
		if err := write(root, map[string][]byte{fmt.Sprintf("modules/%02d-%s.ko", i, name): data}); err != nil {
			return err
		}
	}
	return nil
}

func readModule(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	unpacked, err := xz.NewReader(file)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unpacked)
}

// layOut lays out the disc as Windows' is: boot files for EFI in two forms, and the image of
// the system that Setup puts on the disk.
func (b builder) layOut(ctx context.Context) error {
	files := map[string][]byte{
		"boot/etfsboot.com":                  []byte(strings.Repeat("no BIOS ", 512)),
		bootFolder + "cdboot.efi":            []byte(strings.Repeat("with a prompt ", 400)),
		bootFolder + "cdboot_noprompt.efi":   []byte(strings.Repeat("without a prompt ", 300)),
		"sources/a folder with long names/x": []byte("x"),
	}
	for name, role := range map[string]string{"efisys.bin": "prompt", "efisys_noprompt.bin": "setup"} {
		image, err := b.bootVolume(ctx, role)
		if err != nil {
			return err
		}
		files[bootFolder+name] = image
	}
	system, err := b.system(ctx)
	if err != nil {
		return err
	}
	files["sources/install.wim"] = system
	return write(filepath.Join(b.dir, "disc"), files)
}

// system is the disk of the installed system, compressed: one partition for EFI.
func (b builder) system(ctx context.Context) ([]byte, error) {
	volume, err := b.bootVolume(ctx, "installed")
	if err != nil {
		return nil, err
	}
	var packed strings.Builder
	zip := gzip.NewWriter(&packed)
	for _, part := range [][]byte{partitionTable(len(volume)), volume} {
		if _, err := zip.Write(part); err != nil {
			return nil, fmt.Errorf("compressing the system: %w", err)
		}
	}
	if err := zip.Close(); err != nil {
		return nil, fmt.Errorf("compressing the system: %w", err)
	}
	return []byte(packed.String()), nil
}

// write writes files below dir.
func write(dir string, files map[string][]byte) error {
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		if err := os.WriteFile(path, data, 0o755); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

func (b builder) run(ctx context.Context, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Env = append(os.Environ(), "LC_ALL=C", "MTOOLS_SKIP_CHECK=1")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s %v: %w\n%s", name, args, err, out)
	}
	return nil
}
