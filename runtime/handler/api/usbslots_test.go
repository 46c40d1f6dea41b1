package api

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestASlotHasOneClient(t *testing.T) {
	u := &usbSlots{}
	for want := range v1.UsbClientPassthroughMaxNumberOf {
		if slot, found := u.take("a"); !found || slot != want {
			t.Errorf("got slot %d, %t, want %d", slot, found, want)
		}
	}
	if slot, found := u.take("a"); found {
		t.Errorf("got slot %d of a VMI whose slots are all taken", slot)
	}
	if slot, found := u.take("b"); !found || slot != 0 {
		t.Errorf("another VMI has slot %d, %t", slot, found)
	}
	u.free("a", 2)
	if slot, found := u.take("a"); !found || slot != 2 {
		t.Errorf("got slot %d, %t, want the one that was given back", slot, found)
	}
	for slot := range v1.UsbClientPassthroughMaxNumberOf {
		u.free("a", slot)
	}
	u.free("b", 0)
	if len(u.taken) != 0 {
		t.Errorf("it still knows of %v", u.taken)
	}
}
