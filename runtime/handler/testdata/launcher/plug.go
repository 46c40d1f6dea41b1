package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// plug says what is in the folder that came, and has the disk from then on.
func (l *launcher) plug(request wire.Request) (any, error) {
	var wanted protocol.Plug
	if err := request.Decode(&wanted); err != nil {
		return nil, err
	}
	for _, folder := range request.Files {
		if told, err := tellDevice(wanted.Volume, folder); err != nil || told {
			if err != nil {
				return nil, err
			}
			continue
		}
		entries, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", folder.Fd()))
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			fmt.Println("plug", wanted.Volume, "with", entry.Name())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Disks = append(l.state.Disks, protocol.Disk{Volume: wanted.Volume, Target: "sda", Size: 1 << 20, Claim: "claim-of-" + wanted.Volume})
	return l.state, nil
}

// tellDevice says how a block device came; false when it is none.
func tellDevice(volume string, device *os.File) (bool, error) {
	info, err := device.Stat()
	if err != nil || info.Mode()&os.ModeType != os.ModeDevice {
		return false, err
	}
	size, err := device.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	folder, err := os.Stat(names.LauncherLentDir)
	if err != nil {
		return false, err
	}
	fmt.Println("plug", volume, "with a device of", size, "and a folder of", folder.Sys().(*syscall.Stat_t).Uid)
	return true, nil
}

// unplug leaves the disk to the guest until there is a file "let-go" beside the socket, and says so the first time and the last.
func (l *launcher) unplug(request wire.Request) error {
	var wanted protocol.Unplug
	if err := request.Decode(&wanted); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.state.Disks, func(disk protocol.Disk) bool { return disk.Volume == wanted.Volume })
	if i < 0 {
		return nil // it is gone
	}
	_, err := os.Stat("let-go")
	letGo := err == nil && l.state.Disks[i].Leaving
	if letGo || !l.state.Disks[i].Leaving {
		fmt.Println("unplug", wanted.Volume)
	}
	if letGo {
		l.state.Disks = slices.Delete(slices.Clone(l.state.Disks), i, i+1)
	} else {
		l.state.Disks = slices.Clone(l.state.Disks)
		l.state.Disks[i].Leaving, l.state.Disks[i].Message = true, "the guest is busy"
	}
	return l.conn.Notify(protocol.TypeState, l.state)
}
