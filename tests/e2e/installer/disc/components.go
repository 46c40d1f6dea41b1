package disc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// An installer from the network fetches its components, too, as udebs. A mirror may lack some for days: those of the newest kernel and
// of what was built anew last. What the disc brings along, counts as installed in the installer's eyes, and comes from the packages
// that every mirror has: modules from the package of the very kernel that the disc boots, and what makes file systems.
const choice = `
d-i anna/standard_modules boolean false
d-i anna/choose_modules multiselect partman-auto, partman-ext3, partman-target, grub-installer, apt-mirror-setup, pkgsel, user-setup-udeb, clock-setup, tzsetup-udeb, finish-install
`

var (
	// modules are what an installation to a virtio disk needs besides the initrd's modules, and the panic device by which it tells of a failure.
	modules = []string{"ext4", "virtio_blk", "pvpanic_mmio"}
	// brought are the components that need not be fetched; nobody asks to shrink NTFS (ntfs-3g), nor for volumes on volumes (lvm, crypto).
	brought = []string{"e2fsprogs-udeb", "ntfs-3g-udeb", "partman-auto-lvm", "partman-auto-crypto"}
	// broughtOfKernel are those with the kernel's version in their names.
	broughtOfKernel = []string{"ext4-modules-%s-di"}
	// excluded are those of the kernel that the installer takes without being asked to, where nothing needs them here.
	excluded = []string{"cdrom-core-modules-%s-di", "firewire-core-modules-%s-di", "isofs-modules-%s-di", "jfs-modules-%s-di", "loop-modules-%s-di",
		"pata-modules-%s-di", "pcmcia-storage-modules-%s-di", "sata-modules-%s-di", "scsi-modules-%s-di", "xfs-modules-%s-di"}
	// tools are the files of e2fsprogs and of its libraries.
	tools = []string{"usr/sbin/mke2fs", "usr/sbin/mkfs.ext*", "usr/sbin/e2fsck", "usr/sbin/fsck.ext*", "usr/sbin/tune2fs", "etc/mke2fs.conf",
		"usr/lib/x86_64-linux-gnu/libext2fs.so.2*", "usr/lib/x86_64-linux-gnu/libe2p.so.2*", "usr/lib/x86_64-linux-gnu/libcom_err.so.2*"}
)

const (
	modulesFolder = "usr/lib/modules"
	statusFile    = "var/lib/dpkg/status"
	excludeFile   = "var/cache/anna/exclude" // names of components, one a line
	// proberFile says that os-prober has fetched the kernel's modules for every file system there is,
	// which it does before the boot loader is installed.
	proberFile = "var/lib/os-prober/modules"
)

// kernelOf returns the version of the installer's kernel, by its modules in the initrd.
func kernelOf(ctx context.Context, root string) (string, error) {
	listing, err := run(ctx, root, "sh", "-c", "zcat "+netboot+"/initrd.gz | cpio -it --quiet '*"+modulesFolder+"/*/modules.dep.bin'")
	if err != nil {
		return "", fmt.Errorf("listing the installer's initrd: %w", err)
	}
	name := path.Base(path.Dir(strings.TrimSpace(string(listing))))
	if name == "." || strings.ContainsAny(name, "\n/") {
		return "", fmt.Errorf("the installer's initrd has not one kernel's modules, but %q", listing)
	}
	return name, nil
}

// components puts into extra what the disc brings along.
func components(ctx context.Context, root, extra string) error {
	kernel, err := kernelOf(ctx, root)
	if err != nil {
		return err
	}
	initrd, err := os.MkdirTemp("", "installer-")
	if err != nil {
		return fmt.Errorf("making a folder for the installer's initrd: %w", err)
	}
	defer func() { _ = os.RemoveAll(initrd) }()
	unpack := "zcat '" + filepath.Join(root, netboot, "initrd.gz") + "' | cpio -id --quiet '*" + modulesFolder + "/*' '*" + statusFile + "'"
	if _, err := run(ctx, initrd, "sh", "-c", unpack); err != nil {
		return fmt.Errorf("unpacking the installer's initrd: %w", err)
	}
	if err := bringModules(ctx, root, initrd, extra, kernel); err != nil {
		return err
	}
	for _, pattern := range tools {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("the packages have no %s (%w)", pattern, err)
		}
		if _, err := run(ctx, root, "cp", append([]string{"-a", "-t", folder(extra, path.Dir(pattern))}, files...)...); err != nil {
			return fmt.Errorf("taking %s from the packages: %w", pattern, err)
		}
	}
	status, err := os.ReadFile(filepath.Join(initrd, statusFile))
	if err != nil {
		return fmt.Errorf("reading what is installed in the initrd: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder(extra, path.Dir(statusFile)), "status"), installed(status, kernel), 0o644); err != nil {
		return fmt.Errorf("writing what is installed in the initrd: %w", err)
	}
	names := strings.ReplaceAll(strings.Join(excluded, "\n")+"\n", "%s", kernel)
	if err := os.WriteFile(filepath.Join(folder(extra, path.Dir(excludeFile)), path.Base(excludeFile)), []byte(names), 0o644); err != nil {
		return fmt.Errorf("writing what is not fetched: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder(extra, path.Dir(proberFile)), path.Base(proberFile)), nil, 0o644); err != nil {
		return fmt.Errorf("saying that nothing is fetched for other systems' disks: %w", err)
	}
	return nil
}

// installed adds to the list of installed components those that the disc brings along.
func installed(status []byte, kernel string) []byte {
	var b strings.Builder
	b.WriteString(strings.TrimRight(string(status), "\n") + "\n\n")
	names := slices.Clone(brought)
	for _, name := range broughtOfKernel {
		names = append(names, fmt.Sprintf(name, kernel))
	}
	for _, name := range names {
		fmt.Fprintf(&b, "Package: %s\nStatus: install ok installed\nVersion: 99:0\nArchitecture: amd64\n\n", name)
	}
	return []byte(b.String())
}

// bringModules adds modules, and what they need, of the kernel's package to those of the initrd.
func bringModules(ctx context.Context, root, initrd, extra, kernel string) error {
	own, more := filepath.Join(initrd, modulesFolder, kernel), folder(extra, modulesFolder, kernel)
	base := filepath.Join(root, modulesFolder, kernel)
	files, err := moduleFiles(base)
	if err != nil {
		return err
	}
	wanted, err := needed(files, modules, func(file string) ([]string, error) {
		out, err := run(ctx, base, "modinfo", "-F", "depends", "./"+file)
		return strings.FieldsFunc(strings.TrimSpace(string(out)), func(r rune) bool { return r == ',' }), err
	})
	if err != nil {
		return err
	}
	for _, module := range wanted {
		if _, err := os.Stat(filepath.Join(own, module)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, to := range []string{own, more} {
			if _, err := run(ctx, base, "cp", "--parents", "-t", to, module); err != nil {
				return fmt.Errorf("taking module %s: %w", module, err)
			}
		}
	}
	if err := depmod(ctx, initrd, kernel); err != nil {
		return err
	}
	if _, err := run(ctx, own, "sh", "-c", `cp modules.* "$0"`, more); err != nil {
		return fmt.Errorf("indexing the installer's modules: %w", err)
	}
	return nil
}

// depmod indexes the modules below a root folder; it looks for them in lib, which leads to usr/lib.
func depmod(ctx context.Context, root, kernel string) error {
	if err := os.Symlink("usr/lib", filepath.Join(root, "lib")); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("indexing modules: %w", err)
	}
	if _, err := run(ctx, root, "depmod", "-b", root, kernel); err != nil {
		return fmt.Errorf("indexing modules: %w", err)
	}
	return nil
}

// moduleFiles finds the modules below a folder by their names.
func moduleFiles(base string) (map[string]string, error) {
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(base), ".", func(file string, _ fs.DirEntry, err error) error {
		if name, _, ok := strings.Cut(path.Base(file), ".ko"); ok {
			files[strings.ReplaceAll(name, "-", "_")] = file
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for the kernel's modules: %w", err)
	}
	return files, nil
}

// needed returns the files of modules and of all that they need by the word of depends.
func needed(files map[string]string, modules []string, depends func(file string) ([]string, error)) ([]string, error) {
	var wanted []string
	for todo := slices.Clone(modules); len(todo) > 0; todo = todo[1:] {
		file, ok := files[strings.ReplaceAll(todo[0], "-", "_")]
		if !ok {
			return nil, fmt.Errorf("the kernel has no module %s", todo[0])
		}
		if slices.Contains(wanted, file) {
			continue
		}
		more, err := depends(file)
		if err != nil {
			return nil, fmt.Errorf("asking what module %s needs: %w", todo[0], err)
		}
		wanted, todo = append(wanted, file), append(todo, more...)
	}
	return wanted, nil
}

// folder is a folder that exists from now on; what is then done in it tells when it could not be made.
func folder(elements ...string) string {
	dir := filepath.Join(elements...)
	_ = os.MkdirAll(dir, 0o755)
	return dir
}
