package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"libvirt.org/go/libvirt"
)

const (
	// agentPatience bounds one command to the guest's agent, and agentTurn one for which who asks has more time: others wait for
	// their turn meanwhile, libvirt lets them for half a minute.
	agentPatience = 10 * time.Second
	agentTurn     = 25 * time.Second
	// settlePatience is how long libvirt may take to find the agent again after it was
	// itself started again; the first pause between tries is firstSettle.
	settlePatience = 5 * time.Second
	firstSettle    = 50 * time.Millisecond
	lastSettle     = 2 * time.Second
)

// AgentCommand carries a command to the guest's agent. While libvirt is being started
// again it waits a little for it, for the guest goes on meanwhile; it has it started again where it gave the channel up. A guest that stands still for a while is waited for as long as
// ctx says.
func (h *Hypervisor) AgentCommand(ctx context.Context, command string) (string, error) {
	settled := time.Now().Add(settlePatience)
	_, bounded := ctx.Deadline()
	for pause := firstSettle; ; pause = min(2*pause, lastSettle) {
		answer, err := h.agentCommand(ctx, command)
		if err == nil {
			return answer, nil
		}
		if broken(err) {
			h.renew()
		}
		again := (unsettled(err) || broken(err)) && time.Now().Add(pause).Before(settled) || bounded && unsent(err)
		if !again {
			return "", fmt.Errorf("speaking to the guest agent: %w", agentError(err))
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("speaking to the guest agent: %w", errors.Join(ctx.Err(), plain(err)))
		case <-time.After(pause):
		}
	}
}

func (h *Hypervisor) agentCommand(ctx context.Context, command string) (string, error) {
	domain, _, release, err := h.held()
	if err != nil {
		return "", err
	}
	defer release()
	wait := agentPatience
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(agentTurn, time.Until(deadline))
	}
	if wait <= 0 {
		return "", context.DeadlineExceeded
	}
	seconds := (wait + time.Second - 1) / time.Second
	return domain.QemuAgentCommand(command, libvirt.DomainQemuAgentCommandTimeout(seconds), 0) //nolint:wrapcheck // the callers say which command it was
}

// unsettled says whether an error is libvirt's own absence: the command was not sent.
func unsettled(err error) bool {
	var known libvirt.Error
	return errors.Is(err, errAway) || errors.As(err, &known) && known.Code == libvirt.ERR_AGENT_UNRESPONSIVE && known.Message == notConnected
}

// broken says whether libvirt gave the agent's channel up: the command was not sent, and nor will others be.
func broken(err error) bool {
	var known libvirt.Error
	return errors.As(err, &known) && known.Code == libvirt.ERR_AGENT_UNRESPONSIVE && known.Message == gaveUp
}

// unsent says whether the agent did not answer libvirt's greeting, which goes before a command where an answer was missed: the
// command was not sent.
func unsent(err error) bool {
	var known libvirt.Error
	return errors.As(err, &known) && known.Code == libvirt.ERR_AGENT_UNRESPONSIVE && strings.Contains(known.Message, notGreeted)
}

// libvirt's messages when it has no channel to the agent yet, when it gave that up, and when the agent does not answer its greeting.
const (
	notConnected = "Guest agent is not responding: QEMU guest agent is not connected"
	gaveUp       = "Guest agent is not responding: QEMU guest agent is not available due to an error"
	notGreeted   = "didn't respond to synchronization"
)

// unanswered is a command that was sent, and for whose answer nobody waits any more.
type unanswered struct{ error }

func (unanswered) Timeout() bool { return true }

// agentError is plain, and keeps that a command was left without an answer.
func agentError(err error) error {
	var known libvirt.Error
	if errors.As(err, &known) && known.Code == libvirt.ERR_AGENT_COMMAND_TIMEOUT {
		return unanswered{plain(err)}
	}
	return plain(err)
}

// AgentConnected says whether the guest's agent has its channel open, as far as libvirt knows.
func (h *Hypervisor) AgentConnected() (bool, error) {
	document, err := h.document()
	if err != nil {
		return false, err
	}
	return agentConnected(document)
}

// document is the running domain's, as libvirt has it.
func (h *Hypervisor) document() (string, error) {
	domain, _, release, err := h.held()
	if err != nil {
		return "", err
	}
	defer release()
	document, err := domain.GetXMLDesc(0)
	if err != nil {
		return "", fmt.Errorf("reading the agent's channel: %w", plain(err))
	}
	return document, nil
}

// agentConnected reads the channel's state from the domain's document.
func agentConnected(document string) (bool, error) {
	channel, err := agentChannel(document)
	return channel != nil && channel.Target.VirtIO.State == "connected", err
}
