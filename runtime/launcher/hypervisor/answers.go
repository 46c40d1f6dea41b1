package hypervisor

import (
	"errors"

	"libvirt.org/go/libvirt"
)

// DaemonAnswers returns once the daemon has answered a question that needs neither QEMU nor the
// domain, nor waits behind such that do; at once while it is being started again.
func (h *Hypervisor) DaemonAnswers() bool {
	h.mu.Lock()
	conn := h.conn
	if conn == nil || conn.Ref() != nil {
		h.mu.Unlock()
		return true
	}
	h.mu.Unlock()
	_, _ = conn.GetLibVersion() // an error is an answer, or the daemon's end, which Run sees
	_, _ = conn.Close()
	return true
}

// QEMUAnswers asks QEMU, through libvirt, what it answers at once when it answers at all, and says
// whether it did; true where there is none to be asked. False is that libvirt gave up waiting.
func (h *Hypervisor) QEMUAnswers() bool {
	domain, _, release, err := h.held()
	if err != nil {
		return true
	}
	defer release()
	_, err = domain.GetIOThreadInfo(libvirt.DOMAIN_AFFECT_LIVE)
	var known libvirt.Error
	return !errors.As(err, &known) || known.Code != libvirt.ERR_OPERATION_TIMEOUT
}
