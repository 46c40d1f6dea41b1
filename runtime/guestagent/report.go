package guestagent

import (
	"context"
	"errors"
	"net/netip"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Report is what the agent tells of its guest.
type Report struct {
	// Version is the agent's own.
	Version string
	// OS is nil where the agent does not know its system.
	OS *v1.VirtualMachineInstanceGuestOSInfo
	// Interfaces are those of the guest with a hardware address, loopback left out.
	Interfaces []protocol.GuestInterface
	// Whole says that the agent answered each question, were it by a refusal.
	Whole bool
	// Load says whether the agent knows the command that the function Load sends.
	Load bool
}

// Ask collects a report. What could be learned is returned even when a part failed:
// agents for small systems lack commands.
func Ask(ctx context.Context, channel Channel) (Report, error) {
	var report Report
	var info struct {
		Version  string `json:"version"`
		Commands []struct {
			Name string `json:"name"`
		} `json:"supported_commands"`
	}
	if err := call(ctx, channel, "guest-info", nil, &info); err != nil {
		report.Whole = answered(err)
		return report, err // no agent answers
	}
	report.Version = info.Version
	for _, command := range info.Commands {
		report.Load = report.Load || command.Name == loadCommand
	}
	os, osErr := osInfo(ctx, channel)
	interfaces, interfacesErr := guestInterfaces(ctx, channel)
	report.OS, report.Interfaces = os, interfaces
	report.Whole = answered(osErr) && answered(interfacesErr)
	return report, errors.Join(osErr, interfacesErr)
}

func osInfo(ctx context.Context, channel Channel) (*v1.VirtualMachineInstanceGuestOSInfo, error) {
	var info struct {
		ID            string `json:"id"`
		Name          string `json:"name"`
		PrettyName    string `json:"pretty-name"`
		Version       string `json:"version"`
		VersionID     string `json:"version-id"`
		Machine       string `json:"machine"`
		KernelRelease string `json:"kernel-release"`
		KernelVersion string `json:"kernel-version"`
	}
	if err := call(ctx, channel, "guest-get-osinfo", nil, &info); err != nil {
		return nil, err
	}
	return &v1.VirtualMachineInstanceGuestOSInfo{
		ID: info.ID, Name: info.Name, PrettyName: info.PrettyName, Version: info.Version, VersionID: info.VersionID,
		Machine: info.Machine, KernelRelease: info.KernelRelease, KernelVersion: info.KernelVersion,
	}, nil
}

func guestInterfaces(ctx context.Context, channel Channel) ([]protocol.GuestInterface, error) {
	var links []struct {
		Name      string `json:"name"`
		MAC       string `json:"hardware-address"`
		Addresses []struct {
			Address string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	if err := call(ctx, channel, "guest-network-get-interfaces", nil, &links); err != nil {
		return nil, err
	}
	var out []protocol.GuestInterface
	for _, link := range links {
		if link.MAC == "" || link.MAC == "00:00:00:00:00:00" {
			continue
		}
		guest := protocol.GuestInterface{Name: link.Name, MAC: link.MAC}
		for _, address := range link.Addresses {
			if ip, err := netip.ParseAddr(address.Address); err == nil && !ip.IsLinkLocalUnicast() {
				guest.IPs = append(guest.IPs, ip.String())
			}
		}
		out = append(out, guest)
	}
	return out, nil
}
