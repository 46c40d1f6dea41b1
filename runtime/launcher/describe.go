package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/launcher/process"
)

// describeTimeout bounds the look at the node's processor: virt-handler starts after it.
const describeTimeout = time.Minute

// DescribeNode writes what libvirt knows of this node's processor into the folder into. It runs as root before
// virt-handler, in a container that has the node's devices, and does all of it as the user that guests run as.
func DescribeNode(ctx context.Context, into string) error {
	options := PodOptions()
	if err := becomeGuest(options.LibvirtDir, into); err != nil {
		return err
	}
	children, err := process.NewTable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	go children.Reap(ctx, func(process.Ending) {})
	hv := hypervisor.Options{Program: options.Libvirtd, Dir: options.LibvirtDir, Children: children, Log: options.Log}
	return hypervisor.Describe(ctx, hv, kvmUsable(), into)
}

// becomeGuest gives the folders, and the container's own node of the device, to the user that guests run as, and goes
// on as that user: libvirt refuses to be a guest's as root. Files of an earlier look go, which may tell of another processor.
func becomeGuest(folders ...string) error {
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o770); err != nil {
			return fmt.Errorf("making the folder %s: %w", folder, err)
		}
		left, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil {
			return fmt.Errorf("looking into the folder %s: %w", folder, err)
		}
		for _, file := range left {
			if err := os.RemoveAll(file); err != nil {
				return fmt.Errorf("emptying the folder %s: %w", folder, err)
			}
		}
		if err := os.Chown(folder, names.QEMUUser, names.QEMUUser); err != nil {
			return fmt.Errorf("giving the folder %s away: %w", folder, err)
		}
	}
	if err := os.Chmod("/dev/kvm", 0o666); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("giving KVM away: %w", err)
	}
	return errors.Join(
		changed("groups", unix.Setgroups([]int{names.QEMUUser})), changed("group", unix.Setgid(names.QEMUUser)), changed("user", unix.Setuid(names.QEMUUser)),
	)
}

func changed(what string, err error) error {
	if err != nil {
		return fmt.Errorf("changing the %s to %d: %w", what, names.QEMUUser, err)
	}
	return nil
}
