package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"syscall"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// tellFiles tells of the files of the node that vmi has: size, owner and mode.
func tellFiles(vmi *v1.VirtualMachineInstance) {
	for _, volume := range vmi.Spec.Volumes {
		if volume.HostDisk == nil {
			continue
		}
		info, err := os.Lstat(filepath.Join(names.LauncherDisksDir, volume.Name, path.Base(volume.HostDisk.Path)))
		if err != nil {
			fmt.Println(err)
			continue
		}
		stat := info.Sys().(*syscall.Stat_t)
		fmt.Println("file", info.Name(), info.Size(), stat.Uid, stat.Gid, info.Mode())
	}
}
