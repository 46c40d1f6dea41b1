package guestagent

import (
	"context"
	"errors"
	"fmt"

	v1 "kubevirt.io/api/core/v1"
)

// Info is all that the agent tells of its guest, as the API has it. What could be learned
// is returned even when a part failed; without a version no agent answered.
func Info(ctx context.Context, channel Channel) (v1.VirtualMachineInstanceGuestAgentInfo, error) {
	var info v1.VirtualMachineInstanceGuestAgentInfo
	var about struct {
		Version  string                     `json:"version"`
		Commands []v1.GuestAgentCommandInfo `json:"supported_commands"`
	}
	if err := call(ctx, channel, "guest-info", nil, &about); err != nil {
		return info, err
	}
	info.GAVersion, info.SupportedCommands = about.Version, about.Commands
	var errs []error
	if os, err := osInfo(ctx, channel); err != nil {
		errs = append(errs, err)
	} else {
		info.OS = *os
	}
	var host struct {
		Name string `json:"host-name"`
	}
	errs = append(errs, call(ctx, channel, "guest-get-host-name", nil, &host))
	info.Hostname = host.Name
	var zone struct {
		Name   string `json:"zone"`
		Offset int    `json:"offset"` // seconds east of Greenwich
	}
	if err := call(ctx, channel, "guest-get-timezone", nil, &zone); err != nil {
		errs = append(errs, err)
	} else {
		info.Timezone = fmt.Sprintf("%s, %d", zone.Name, zone.Offset)
	}
	users, err := Users(ctx, channel)
	errs = append(errs, err)
	info.UserList = users.Items
	filesystems, err := Filesystems(ctx, channel)
	errs = append(errs, err)
	info.FSInfo.Filesystems = filesystems.Items
	return info, errors.Join(errs...)
}

// Users are those who are logged in to the guest.
func Users(ctx context.Context, channel Channel) (v1.VirtualMachineInstanceGuestOSUserList, error) {
	list := v1.VirtualMachineInstanceGuestOSUserList{Items: []v1.VirtualMachineInstanceGuestOSUser{}}
	var users []struct {
		Name      string  `json:"user"`
		Domain    string  `json:"domain"`
		LoginTime float64 `json:"login-time"`
	}
	if err := call(ctx, channel, "guest-get-users", nil, &users); err != nil {
		return list, err
	}
	for _, user := range users {
		list.Items = append(list.Items, v1.VirtualMachineInstanceGuestOSUser{UserName: user.Name, Domain: user.Domain, LoginTime: user.LoginTime})
	}
	return list, nil
}

// Filesystems are those that the guest has mounted.
func Filesystems(ctx context.Context, channel Channel) (v1.VirtualMachineInstanceFileSystemList, error) {
	list := v1.VirtualMachineInstanceFileSystemList{Items: []v1.VirtualMachineInstanceFileSystem{}}
	var filesystems []struct {
		Name       string `json:"name"`
		MountPoint string `json:"mountpoint"`
		Type       string `json:"type"`
		UsedBytes  int    `json:"used-bytes"`
		TotalBytes int    `json:"total-bytes"`
		Disks      []struct {
			Serial string `json:"serial"`
			Bus    string `json:"bus-type"`
		} `json:"disk"`
	}
	if err := call(ctx, channel, "guest-get-fsinfo", nil, &filesystems); err != nil {
		return list, err
	}
	for _, one := range filesystems {
		filesystem := v1.VirtualMachineInstanceFileSystem{
			DiskName: one.Name, MountPoint: one.MountPoint, FileSystemType: one.Type, UsedBytes: one.UsedBytes, TotalBytes: one.TotalBytes,
		}
		for _, disk := range one.Disks {
			filesystem.Disk = append(filesystem.Disk, v1.VirtualMachineInstanceFileSystemDisk{Serial: disk.Serial, BusType: disk.Bus})
		}
		list.Items = append(list.Items, filesystem)
	}
	return list, nil
}
