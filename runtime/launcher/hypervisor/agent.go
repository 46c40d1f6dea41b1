package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"libvirt.org/go/libvirt"
)

const (
	// agentPatience bounds one command to the guest's agent.
	agentPatience = 10 * time.Second
	// settlePatience is how long libvirt may take to find the agent again after it was
	// itself started again; the first pause between tries is firstSettle.
	settlePatience = 5 * time.Second
	firstSettle    = 50 * time.Millisecond
)

// AgentCommand carries a command to the guest's agent. While libvirt is being started
// again it waits a little for it, for the guest goes on meanwhile.
func (h *Hypervisor) AgentCommand(ctx context.Context, command string) (string, error) {
	settled := time.Now().Add(settlePatience)
	for pause := firstSettle; ; pause *= 2 {
		answer, err := h.agentCommand(ctx, command)
		if err == nil {
			return answer, nil
		}
		if !unsettled(err) || time.Now().Add(pause).After(settled) {
			return "", fmt.Errorf("speaking to the guest agent: %w", plain(err))
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
		wait = min(wait, time.Until(deadline))
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

// notConnected is libvirt's message when it has no channel to the agent yet.
const notConnected = "Guest agent is not responding: QEMU guest agent is not connected"
