package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/disks"
)

// lender is what a loan needs of libvirt.
type lender interface {
	Lend(n int, file *os.File) (string, error)
	TakeBack(n int) error
}

// loan is a block device that QEMU has open without a right to open it: the device is another
// pod's, and cgroups keep every process of this one from it.
type loan struct {
	n      int
	device *os.File
	hv     lender
	log    *slog.Logger
	// path is what stands for the device in the file system; empty until the loan has begun.
	path string
}

// newLoan is the loan of the device that came; nil where QEMU opens by a path what is prepared.
func (m *machine) newLoan(came []*os.File, prepared disks.Disk) *loan {
	if len(came) == 0 || !prepared.Block {
		return nil
	}
	m.plugs.lent++
	return &loan{n: m.plugs.lent, device: came[0], hv: m.hv, log: m.log}
}

// begin hands the device to QEMU for a disk that is cached so, and returns where libvirt finds image.
func (l *loan) begin(cache string, image domain.Image) (*libvirtxml.DomainDiskSource, error) {
	if err := direct(l.device, cache); err != nil {
		return nil, err
	}
	path, err := l.hv.Lend(l.n, l.device)
	l.path = path // it may have arrived, whatever the answer was
	if err != nil {
		return nil, err
	}
	// libvirt wants something to be at the path, and QEMU looks at its name only.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return nil, fmt.Errorf("making what stands for the device: %w", err)
	}
	image.Path = path
	return domain.Source(image), nil
}

// How often a device is asked back from QEMU, and after how long again: libvirtd may just have ended, and
// what libvirtd leaves behind QEMU keeps open.
const (
	takeBackTries = 20
	takeBackPause = 500 * time.Millisecond
)

// end takes the device back from QEMU, which closes it once no disk is on it. It may be asked of what
// has not begun.
func (l *loan) end() {
	if l == nil || l.path == "" {
		return
	}
	err := l.hv.TakeBack(l.n)
	for tries := 1; err != nil && tries < takeBackTries; tries++ {
		<-time.After(takeBackPause)
		err = l.hv.TakeBack(l.n)
	}
	if err != nil {
		l.log.Warn("Failed to take a device back from QEMU, which keeps it open", "err", err)
	}
	if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.log.Warn("Failed to remove what stood for a device", "err", err)
	}
}

// direct makes file be read and written past the page cache, or not, as a disk that is cached so: QEMU
// takes only an open file that is as it would open it itself.
func direct(file *os.File, cache string) error {
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("looking at how the device is open: %w", err)
	}
	flags &^= unix.O_DIRECT
	if cache == string(v1.CacheNone) {
		flags |= unix.O_DIRECT
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETFL, flags); err != nil {
		return fmt.Errorf("opening the device for the cache mode %s: %w", cache, err)
	}
	return nil
}

// insert puts a disc into its drive.
func (m *machine) insert(alias string, image domain.Image, given *loan) error {
	if given == nil {
		return m.hv.Insert(alias, domain.Source(image))
	}
	cache, err := m.hv.Cache(alias)
	if err != nil {
		return err
	}
	source, err := given.begin(cache, image)
	if err != nil {
		return err
	}
	return m.hv.Insert(alias, source)
}
