package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/domain"
)

const (
	// renewPause is the least time between two renewals of the agent's channel: a guest whose agent is none breaks it again at once, and
	// each is one of the few starts of libvirtd that Run allows.
	renewPause = time.Minute
	// A guest that sends nothing for leftSilence has sent all that was left; one that never ends is listened to for leftPatience.
	leftSilence  = 500 * time.Millisecond
	leftPatience = 5 * time.Second
)

var errBroken = errors.New("it gave up the channel to the guest agent, on which came what is no answer, or one that is too long")

// renew has libvirtd started again, the only way to have it open the agent's channel anew: it gives one up on which it read what is
// no answer, or more than 10 MiB, as a command in the guest may print, until the agent itself closes it.
func (h *Hypervisor) renew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.renewed) < renewPause {
		return
	}
	select {
	case h.broken <- struct{}{}:
		h.renewed = time.Now()
	default: // libvirtd is away, or being started
	}
}

// end stops a daemon that gave the agent's channel up, and reads what is left on that, which the next one would stumble over, too.
func (h *Hypervisor) end(ctx context.Context, d *daemon) error {
	socket, err := h.agentSocket()
	d.stop()
	if err == nil && socket != "" {
		err = readAway(ctx, socket)
	}
	return fmt.Errorf("libvirtd was ended: %w", errors.Join(errBroken, err))
}

// agentSocket is the path of QEMU's side of the agent's channel, empty where there is none.
func (h *Hypervisor) agentSocket() (string, error) {
	document, err := h.document()
	if err != nil {
		return "", err
	}
	channel, err := agentChannel(document)
	if err != nil || channel == nil || channel.Source == nil || channel.Source.UNIX == nil {
		return "", err
	}
	return channel.Source.UNIX.Path, nil
}

// readAway reads what a guest sends to a channel until it sends no more.
func readAway(ctx context.Context, socket string) error {
	conn, err := (&net.Dialer{Timeout: leftSilence}).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("opening the guest agent's channel: %w", err)
	}
	defer func() { _ = conn.Close() }()
	left := make([]byte, 64<<10)
	for end := time.Now().Add(leftPatience); time.Now().Before(end); {
		if err := conn.SetReadDeadline(time.Now().Add(leftSilence)); err != nil {
			return fmt.Errorf("reading what is left on the guest agent's channel: %w", err)
		}
		if _, err := conn.Read(left); err != nil {
			var timeout net.Error
			if errors.Is(err, io.EOF) || errors.As(err, &timeout) && timeout.Timeout() {
				return nil
			}
			return fmt.Errorf("reading what is left on the guest agent's channel: %w", err)
		}
	}
	return nil
}

// agentChannel is the agent's channel in a domain's document, nil where it has none.
func agentChannel(document string) (*libvirtxml.DomainChannel, error) {
	var running libvirtxml.Domain
	if err := running.Unmarshal(document); err != nil {
		return nil, fmt.Errorf("reading the agent's channel: %w", err)
	}
	if running.Devices == nil {
		return nil, nil //nolint:nilnil // a domain without the channel is none of an error
	}
	for i := range running.Devices.Channels {
		channel := &running.Devices.Channels[i]
		if port := channel.Target; port != nil && port.VirtIO != nil && port.VirtIO.Name == domain.AgentChannel {
			return channel, nil
		}
	}
	return nil, nil //nolint:nilnil // as above
}
