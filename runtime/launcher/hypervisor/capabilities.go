package hypervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/domain"
)

// libvirt asks QEMU for its abilities at the first start, which takes longer than all
// else of a start, and keeps the answer in a file that it trusts while the files it
// came from are unchanged. The launcher image carries that answer for emulation, made
// when the image was built; only the times of the files differ on each node, and are
// put in here. With KVM the answer depends on the node: wherever KVM may come to be used,
// libvirt asks there.

// Files on whose times libvirt's trust depends.
const (
	modulesDir = "/usr/lib/x86_64-linux-gnu/qemu"
	driver     = "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so"
)

// BakedCapabilities is where the launcher image carries QEMU's abilities.
const BakedCapabilities = "/usr/share/slipway/qemu-capabilities.xml"

// kvmDevice is there in a pod that has KVM or is about to get it.
const kvmDevice = "/dev/kvm"

// cachedCapabilities is libvirt's file for QEMU under its runtime folder.
func cachedCapabilities(dir string) string {
	sum := sha256.Sum256([]byte(domain.Emulator))
	return filepath.Join(dir, "cache", "libvirt", "qemu", "cache", "capabilities", hex.EncodeToString(sum[:])+".xml")
}

// installCapabilities puts the baked answer where libvirt looks for it, unless the
// device kvm is there. Without one, or when libvirt does not trust it, QEMU is asked.
func installCapabilities(baked, kvm, program, dir string) error {
	if _, err := os.Stat(kvm); err == nil {
		return nil
	}
	content, err := os.ReadFile(baked)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading QEMU's abilities: %w", err)
	}
	qemu, _, err := times(domain.Emulator)
	if err != nil {
		return err
	}
	_, modules, err := times(modulesDir)
	if err != nil {
		return err
	}
	self, _, err := times(program)
	if err != nil {
		return err
	}
	plugin, _, err := times(driver)
	if err != nil {
		return err
	}
	for name, value := range map[string]int64{"qemuctime": qemu, "qemumoddirmtime": modules, "selfctime": max(self, plugin)} {
		content = replaceTime(content, name, value)
	}
	path := cachedCapabilities(dir)
	if err := os.MkdirAll(filepath.Dir(path), 0o770); err != nil {
		return fmt.Errorf("making libvirt's cache: %w", err)
	}
	if err := os.WriteFile(path, content, 0o660); err != nil {
		return fmt.Errorf("filling libvirt's cache: %w", err)
	}
	return nil
}

// replaceTime sets the content of the element name.
func replaceTime(document []byte, name string, value int64) []byte {
	element := regexp.MustCompile("<" + name + `>\d+</` + name + ">")
	return element.ReplaceAll(document, []byte("<"+name+">"+strconv.FormatInt(value, 10)+"</"+name+">"))
}

// times returns when a file's inode and its content last changed, in Unix seconds.
func times(path string) (changed, modified int64, err error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0, 0, fmt.Errorf("looking at %s: %w", path, err)
	}
	return stat.Ctim.Sec, stat.Mtim.Sec, nil
}

// BakeCapabilities makes libvirt ask QEMU what it can do and writes the answer to
// path, for the image that is being built. ctx ends it when libvirt hangs.
func BakeCapabilities(ctx context.Context, options Options, path string) error {
	if _, err := os.Stat(kvmDevice); err == nil {
		return fmt.Errorf("%s is here, and QEMU would tell what it can do with this machine's KVM; hide it", kvmDevice)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := New(options)
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	err := h.Warm(ctx, false)
	cancel()
	if err := errors.Join(err, <-done); err != nil {
		return err
	}
	content, err := os.ReadFile(cachedCapabilities(options.Dir))
	if err != nil {
		return fmt.Errorf("reading libvirt's cache: %w", err)
	}
	for _, name := range []string{"qemuctime", "qemumoddirmtime", "selfctime"} {
		content = replaceTime(content, name, 0) // of this machine; the image is the same everywhere
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("keeping QEMU's abilities: %w", err)
	}
	return nil
}
