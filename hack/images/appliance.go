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
	"strconv"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/cpio"
	"github.com/slipway-vm/slipway/hack/images/debian"
	"github.com/slipway-vm/slipway/hack/images/kmod"
	"github.com/slipway-vm/slipway/hack/images/tree"
)

const (
	stickyBit = fs.ModeSticky
	// applianceUUID names the appliance's file system; it means nothing, it must only be the same in every build.
	applianceUUID = "7f1c0a52-51a9-4a71-8d0e-5119a7a51190"
	// applianceSpare is the free space in the appliance's file system, in MiB.
	applianceSpare = 48
	readmeFixed    = "This is libguestfs' fixed appliance (see libguestfs-make-fixed-appliance(1)): kernel, initrd and root.\n"
)

// makeAppliance makes libguestfs' appliance from the packages installed in root, by supermin as libguestfs itself would do at its first
// start, and then packs initrd and root file system anew so that they have no times, order or identifiers of this run.
func makeAppliance(ctx context.Context, _ cache.Dir, root string, lock *debian.Lock) error {
	const build = "/appliance.build"
	if err := inChroot(ctx, root, lock, "supermin", "--build", "--copy-kernel", "--format", "ext2", "--size", "3G", "--host-cpu", "x86_64",
		"--use-installed", "/usr/lib/x86_64-linux-gnu/guestfs/supermin.d", "-o", build); err != nil {
		return fmt.Errorf("making the appliance: %w", err)
	}
	target := filepath.Join(root, applianceFolder)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("making the appliance: %w", err)
	}
	if err := os.Rename(filepath.Join(root, build, "kernel"), filepath.Join(target, "kernel")); err != nil {
		return fmt.Errorf("taking the appliance's kernel: %w", err)
	}
	if err := os.Chmod(filepath.Join(target, "kernel"), 0o644); err != nil {
		return fmt.Errorf("taking the appliance's kernel: %w", err)
	}
	if err := repackInitrd(ctx, root, lock); err != nil {
		return err
	}
	if err := repackRoot(ctx, root, lock); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(target, "README.fixed"), []byte(readmeFixed), 0o644); err != nil {
		return fmt.Errorf("describing the appliance: %w", err)
	}
	return nil
}

// repackInitrd writes supermin's initrd anew, sorted, without times and without its modules' signatures.
func repackInitrd(ctx context.Context, root string, lock *debian.Lock) error {
	if err := inChroot(ctx, root, lock, "sh", "-ec", "mkdir /appliance.build/i && cd /appliance.build/i && cpio -idm --quiet < ../initrd"); err != nil {
		return fmt.Errorf("unpacking the appliance's initrd: %w", err)
	}
	files := filepath.Join(root, "appliance.build", "i")
	if err := unsignModules(files); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(root, applianceFolder, "initrd"))
	if err != nil {
		return fmt.Errorf("packing the appliance's initrd: %w", err)
	}
	if err := errors.Join(cpio.Write(f, files), f.Close()); err != nil {
		return fmt.Errorf("packing the appliance's initrd: %w", err)
	}
	return nil
}

// unsignModules takes the signatures of the modules in dir away: the appliance loads them at each start.
func unsignModules(dir string) error {
	modules, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return fmt.Errorf("listing the modules of the appliance's initrd: %w", err)
	}
	if len(modules) == 0 {
		return fmt.Errorf("the appliance's initrd has no modules in %s", dir)
	}
	for _, file := range modules {
		module, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("taking the signature of a module away: %w", err)
		}
		unsigned, _ := kmod.Split(module)
		if err := os.WriteFile(file, unsigned, 0o644); err != nil {
			return fmt.Errorf("taking the signature of a module away: %w", err)
		}
	}
	return nil
}

// applianceSkips leaves out of the appliance what no libguestfs operation reads.
var applianceSkips = []string{
	"usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/bug", "usr/share/bash-completion", "usr/share/zsh",
	"usr/share/icons", "usr/share/fonts", "usr/share/X11", "usr/share/gnupg", "var/cache/**", "var/log/**", "usr/lib/x86_64-linux-gnu/perl*", "usr/share/perl*",
	"usr/lib/x86_64-linux-gnu/gconv", "etc/machine-id", "lost+found", "usr/share/i18n", "usr/share/perl5",
	"usr/lib/python3*", "usr/bin/python3*", "usr/lib/udev/hwdb.d", "usr/lib/x86_64-linux-gnu/gprofng", "usr/lib/x86_64-linux-gnu/libgprofng*", "usr/bin/*gprofng*", "usr/bin/*gp-*",
	"usr/lib/x86_64-linux-gnu/ldscripts", "usr/share/zoneinfo",
}

// repackRoot copies the files of supermin's root file system into a new one, just large enough.
func repackRoot(ctx context.Context, root string, lock *debian.Lock) error {
	if err := inChroot(ctx, root, lock, "sh", "-ec", "mkdir /appliance.build/r && debugfs -R 'rdump / /appliance.build/r' /appliance.build/root"); err != nil {
		return fmt.Errorf("unpacking the appliance's root: %w", err)
	}
	files := filepath.Join(root, "appliance.build", "r")
	archive, err := os.Create(filepath.Join(root, "appliance.build", "root.tar"))
	if err != nil {
		return fmt.Errorf("packing the appliance's root: %w", err)
	}
	t := tree.Tree{Root: files, Skip: tree.SkipNames(nil, applianceSkips), Time: lock.Resolved}
	if err := errors.Join(t.WriteTar(archive), archive.Close()); err != nil {
		return fmt.Errorf("packing the appliance's root: %w", err)
	}
	st, err := os.Stat(archive.Name())
	if err != nil {
		return fmt.Errorf("packing the appliance's root: %w", err)
	}
	// Inodes, block maps and rounding of small files to blocks take about a tenth.
	mebibytes := st.Size()*11/10>>20 + applianceSpare
	image := "/" + applianceFolder + "/root"
	if err := inChroot(ctx, root, lock, "mke2fs", "-q", "-t", "ext2", "-b", "4096", "-m", "0", "-L", "guestfs", "-U", applianceUUID, "-E", "hash_seed="+applianceUUID+",root_owner=0:0",
		"-d", "/appliance.build/root.tar", image, strconv.FormatInt(mebibytes, 10)+"M"); err != nil {
		return fmt.Errorf("making the appliance's file system: %w", err)
	}
	return nil
}

// inChroot runs a program in root with mounts of its own, which end with it.
func inChroot(ctx context.Context, root string, lock *debian.Lock, args ...string) error {
	script := `mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"`
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--propagation", "private", "--", "sh", "-ec", script, root}, args...)...)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "TZ=UTC", "HOME=/root", "TMPDIR=/tmp",
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(lock.Resolved.Unix(), 10),
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", args[0], err, out.String())
	}
	return nil
}
