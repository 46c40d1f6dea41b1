package hypervisor

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/slipway-vm/slipway/runtime/launcher/screen"
)

// Suspend stops the guest's processors.
func (h *Hypervisor) Suspend() error {
	domain, err := h.current()
	if err != nil {
		return err
	}
	if err := domain.Suspend(); err != nil {
		return fmt.Errorf("pausing the guest: %w", plain(err))
	}
	return nil
}

// Resume lets a paused guest go on.
func (h *Hypervisor) Resume() error {
	domain, err := h.current()
	if err != nil {
		return err
	}
	if err := domain.Resume(); err != nil {
		return fmt.Errorf("resuming the guest: %w", plain(err))
	}
	return nil
}

// Reset presses the reset button, of which the guest is not told before.
func (h *Hypervisor) Reset() error {
	domain, err := h.current()
	if err != nil {
		return err
	}
	if err := domain.Reset(0); err != nil {
		return fmt.Errorf("resetting the guest: %w", plain(err))
	}
	return nil
}

// Reboot asks the guest to restart: by its agent, or else by the power button, after
// which libvirt starts it again.
func (h *Hypervisor) Reboot(agent bool) error {
	domain, err := h.current()
	if err != nil {
		return err
	}
	var agentErr error
	if agent {
		if agentErr = domain.Reboot(libvirt.DOMAIN_REBOOT_GUEST_AGENT); agentErr == nil {
			return nil
		}
	}
	if err := domain.Reboot(libvirt.DOMAIN_REBOOT_ACPI_POWER_BTN); err != nil {
		return fmt.Errorf("asking the guest to restart: %w", errors.Join(agentErr, plain(err)))
	}
	return nil
}

// Screenshot writes what the guest's first screen shows to out, as PNG.
func (h *Hypervisor) Screenshot(out io.Writer) error {
	domain, conn, release, err := h.held()
	if err != nil {
		return err
	}
	defer release()
	stream, err := conn.NewStream(0)
	if err != nil {
		return fmt.Errorf("taking a picture of the screen: %w", plain(err))
	}
	defer func() { _ = stream.Free() }()
	kind, err := domain.Screenshot(stream, 0, 0)
	if err != nil {
		return fmt.Errorf("taking a picture of the screen: %w", plain(err))
	}
	// libvirt may say more of the picture's kind than which it is.
	kind, _, _ = strings.Cut(kind, ";")
	if err := screen.WritePNG(out, received{stream}, kind); err != nil {
		_ = stream.Abort()
		return fmt.Errorf("taking a picture of the screen: %w", err)
	}
	if err := stream.Finish(); err != nil {
		return fmt.Errorf("taking a picture of the screen: %w", plain(err))
	}
	return nil
}

// received reads a stream of libvirt.
type received struct{ stream *libvirt.Stream }

func (r received) Read(p []byte) (int, error) {
	n, err := r.stream.Recv(p)
	if err != nil {
		return 0, err //nolint:wrapcheck // io.EOF among them
	}
	if n < 0 { // of streams that do not block, which this one does
		return 0, io.ErrNoProgress
	}
	return n, nil
}
