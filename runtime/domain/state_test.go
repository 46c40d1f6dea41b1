package domain_test

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/guestid"
	"github.com/slipway-vm/slipway/runtime/domain"
)

// The variables of UEFI are found again after a rename, and nowhere but in their folder.
func TestVariablesAreFoundByTheGuestsName(t *testing.T) {
	for noted, want := range map[string]string{
		"":         "/state/nvram/web_VARS.fd",
		"shop":     "/state/nvram/shop_VARS.fd",
		"../../..": "/state/nvram/web_VARS.fd",
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Name, vmi.Annotations = "web", map[string]string{guestid.AnnotationName: noted}
		vmi.Spec.Domain.Firmware = &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{Persistent: new(true)}}}
		if got := domain.NVRAM(vmi, "/state"); got != want {
			t.Errorf("with %q the variables are in %s, want %s", noted, got, want)
		}
	}
}
