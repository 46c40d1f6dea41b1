package api

import (
	"net/http"
	"sync"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// usbSlots knows which slots of each VMI have a client. The zero value is ready.
type usbSlots struct {
	mu    sync.Mutex
	taken map[types.UID][v1.UsbClientPassthroughMaxNumberOf]bool
}

// take finds a slot of vmi that nobody has; free gives it back.
func (u *usbSlots) take(vmi types.UID) (slot int, found bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := u.taken[vmi]
	for slot := range taken {
		if !taken[slot] {
			u.set(vmi, slot, true)
			return slot, true
		}
	}
	return 0, false
}

func (u *usbSlots) free(vmi types.UID, slot int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.set(vmi, slot, false)
}

// set is called with the lock held.
func (u *usbSlots) set(vmi types.UID, slot int, to bool) {
	if u.taken == nil {
		u.taken = map[types.UID][v1.UsbClientPassthroughMaxNumberOf]bool{}
	}
	slots := u.taken[vmi]
	slots[slot] = to
	u.taken[vmi] = slots
	if slots == [v1.UsbClientPassthroughMaxNumberOf]bool{} {
		delete(u.taken, vmi)
	}
}

// usbredir joins a client with one of the guest's slots for USB devices, for as long as the device is plugged in.
func (s *Server) usbredir(w http.ResponseWriter, r *http.Request, guest guest) error {
	if guest.vmi.Spec.Domain.Devices.ClientPassthrough == nil {
		return guest.conflict("Not configured with USB Redirection")
	}
	if !websocket.IsWebSocketUpgrade(r) {
		return errNoWebsocket
	}
	slot, found := s.usbSlots.take(guest.vmi.UID)
	if !found {
		return guest.conflict("all USB slots of the VMI are in use; end one of the redirections")
	}
	defer s.usbSlots.free(guest.vmi.UID, slot)
	return s.stream(r.Context(), w, r, guest, device(guest, protocol.ChannelUSB(slot), metric.USB))
}
