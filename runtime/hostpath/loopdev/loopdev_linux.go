// Package loopdev makes block devices of files. It keeps no list of its own: the kernel
// knows which file is behind which device, so nothing is lost with the process.
package loopdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Devices are the loop devices of the node.
type Devices struct {
	// Dir holds the device nodes, normally /dev.
	Dir string
	// Sys is where sysfs is mounted, normally /sys.
	Sys string
}

// attempts bounds the race for a free device with other programs of the node.
const attempts = 20

// Attach returns the path of the block device behind which file, open for reading and writing, lies,
// making one when there is none yet. The device has the size that file has now.
func (d Devices) Attach(file *os.File) (string, error) {
	path, err := d.Find(file)
	if err != nil {
		return "", err
	}
	if path != "" {
		return path, fit(path)
	}
	control, err := os.OpenFile(filepath.Join(d.Dir, "loop-control"), os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("opening the loop devices' control (load the kernel module loop): %w", err)
	}
	defer control.Close()
	for range attempts {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("finding a free loop device: %w", err)
		}
		path, err := d.configure(number, file)
		if errors.Is(err, unix.EBUSY) {
			continue // taken by somebody else meanwhile
		}
		return path, err
	}
	return "", fmt.Errorf("attaching %s: no loop device stayed free in %d attempts", file.Name(), attempts)
}

func (d Devices) configure(number int, file *os.File) (string, error) {
	path, err := d.node(number)
	if err != nil {
		return "", err
	}
	device, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("opening %s: %w", path, err)
	}
	defer device.Close()
	config := unix.LoopConfig{Fd: uint32(file.Fd())}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], filepath.Base(file.Name()))
	config.Info.Flags = unix.LO_FLAGS_DIRECT_IO // no second copy in the page cache
	err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
	if errors.Is(err, unix.EINVAL) {
		config.Info.Flags = 0 // the file's file system has no direct I/O
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
	}
	if err != nil {
		return "", fmt.Errorf("attaching %s to %s: %w", file.Name(), path, err)
	}
	return path, nil
}

// Detach frees the device behind which file lies, if there is one. A device in use is freed with its last user.
func (d Devices) Detach(file *os.File) error {
	path, err := d.Find(file)
	if err != nil || path == "" {
		return err
	}
	device, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detaching %s: %w", path, err)
	}
	return nil
}

// Fit gives the device of file, if there is one, the size that file has now, also while it is in use.
func (d Devices) Fit(file *os.File) error {
	path, err := d.Find(file)
	if err != nil || path == "" {
		return err
	}
	return fit(path)
}

func fit(path string) error {
	device, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("resizing %s: %w", path, err)
	}
	return nil
}

// Flush writes what the device of file, if there is one, still holds in memory to file.
func (d Devices) Flush(file *os.File) error {
	path, err := d.Find(file)
	if err != nil || path == "" {
		return err
	}
	device, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer device.Close()
	if err := device.Sync(); err != nil {
		return fmt.Errorf("flushing %s: %w", path, err)
	}
	return nil
}

// Find returns the path of the device behind which file lies, or "".
func (d Devices) Find(file *os.File) (string, error) {
	var want unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &want); err != nil {
		return "", fmt.Errorf("reading %s: %w", file.Name(), err)
	}
	// A device with a file behind it has a folder loop in sysfs.
	found, err := filepath.Glob(filepath.Join(d.Sys, "block", "loop*", "loop"))
	if err != nil {
		return "", fmt.Errorf("listing the loop devices: %w", err)
	}
	for _, folder := range found {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(folder)), "loop"))
		if err != nil {
			continue
		}
		path, err := d.node(number)
		if err != nil {
			return "", err
		}
		same, err := isBehind(path, want)
		if err != nil {
			return "", err
		}
		if same {
			return path, nil
		}
	}
	return "", nil
}

func isBehind(path string, want unix.Stat_t) (bool, error) {
	device, err := os.Open(path)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, fs.ErrNotExist) {
		return false, nil // gone meanwhile
	}
	if err != nil {
		return false, fmt.Errorf("opening %s: %w", path, err)
	}
	defer device.Close()
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return false, nil // freed meanwhile
	}
	if err != nil {
		return false, fmt.Errorf("reading the state of %s: %w", path, err)
	}
	return info.Inode == want.Ino && info.Device == want.Dev, nil
}

// node returns the path of a device's node, made here where the kernel's own file
// system of devices is not the one in Dir.
func (d Devices) node(number int) (string, error) {
	path := filepath.Join(d.Dir, "loop"+strconv.Itoa(number))
	err := unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(7, uint32(number))))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("making the node %s: %w", path, err)
	}
	return path, nil
}
