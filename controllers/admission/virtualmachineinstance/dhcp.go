package virtualmachineinstance

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

const (
	// maxDHCPValue is how long the value of a DHCP option may be, maxDHCPTotal how long all
	// may be together: with the lease itself they are to fit into one packet.
	maxDHCPValue = 255
	maxDHCPTotal = 800
	// firstPrivate and lastPrivate are the options that are left to each site.
	firstPrivate, lastPrivate = 224, 254
)

// dhcpOptions checks what the guest is to be told by DHCP beside its address.
func dhcpOptions(options *virtv1.DHCPOptions, at *field.Path) field.ErrorList {
	if options == nil {
		return nil
	}
	var errs field.ErrorList
	total := 0
	text := func(at *field.Path, value string) {
		total += len(value)
		if len(value) > maxDHCPValue {
			errs = append(errs, field.TooLong(at, "", maxDHCPValue))
		}
	}
	text(at.Child("bootFileName"), options.BootFileName)
	text(at.Child("tftpServerName"), options.TFTPServerName)
	for i, server := range options.NTPServers {
		total += 4
		if ip, err := netip.ParseAddr(server); err != nil || !ip.Is4() {
			errs = append(errs, field.Invalid(at.Child("ntpServers").Index(i), server, "NTP servers must be a list of valid IPv4 addresses."))
		}
	}
	seen := map[int]bool{}
	for i, private := range options.PrivateOptions {
		here := at.Child("privateOptions").Index(i)
		text(here.Child("value"), private.Value)
		switch {
		case private.Option < firstPrivate || private.Option > lastPrivate:
			errs = append(errs, field.Invalid(here.Child("option"), private.Option, "provided DHCPPrivateOptions are out of range, must be in range 224 to 254"))
		case seen[private.Option]:
			errs = append(errs, field.Duplicate(here.Child("option"), private.Option))
		case private.Value == "":
			errs = append(errs, field.Required(here.Child("value"), "say what the option is"))
		}
		seen[private.Option] = true
	}
	if total > maxDHCPTotal {
		errs = append(errs, field.Invalid(at, fmt.Sprintf("%d bytes", total), fmt.Sprintf("must be at most %d bytes in all", maxDHCPTotal)))
	}
	return errs
}
