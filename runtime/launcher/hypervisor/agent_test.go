package hypervisor

import (
	"errors"
	"fmt"
	"testing"

	"libvirt.org/go/libvirt"
)

func TestWhetherTheAgentIsConnectedIsReadFromItsChannel(t *testing.T) {
	const channel = `<domain type="qemu"><devices>
<channel type="unix"><target type="virtio" name="org.github.vhostmd.1" state="connected"/></channel>
<channel type="unix"><target type="virtio" name="org.qemu.guest_agent.0"%s/></channel>
</devices></domain>`
	for state, want := range map[string]bool{` state="connected"`: true, ` state="disconnected"`: false, "": false} {
		if got, err := agentConnected(fmt.Sprintf(channel, state)); got != want || err != nil {
			t.Errorf("with%s: %t, %v", state, got, err)
		}
	}
	if got, err := agentConnected("<domain/>"); got || err != nil {
		t.Errorf("without devices: %t, %v", got, err)
	}
}

func TestWhatBecameOfACommandThatTheAgentDidNotAnswer(t *testing.T) {
	const responding = "Guest agent is not responding: "
	for name, c := range map[string]struct {
		err                               error
		unsettled, broken, unsent, waited bool
	}{
		"libvirtd is away":      {err: errAway, unsettled: true},
		"no channel yet":        {err: libvirt.Error{Code: libvirt.ERR_AGENT_UNRESPONSIVE, Message: notConnected}, unsettled: true},
		"a channel given up":    {err: libvirt.Error{Code: libvirt.ERR_AGENT_UNRESPONSIVE, Message: gaveUp}, broken: true},
		"no answer to greeting": {err: libvirt.Error{Code: libvirt.ERR_AGENT_UNRESPONSIVE, Message: responding + "guest agent didn't respond to synchronization within '5' seconds"}, unsent: true},
		"no answer":             {err: libvirt.Error{Code: libvirt.ERR_AGENT_COMMAND_TIMEOUT, Message: responding + "guest agent didn't respond to command within '10' seconds"}, waited: true},
		"another error":         {err: libvirt.Error{Code: libvirt.ERR_OPERATION_INVALID, Message: "domain is not running"}},
	} {
		t.Run(name, func(t *testing.T) {
			var timeout interface{ Timeout() bool }
			waited := errors.As(agentError(c.err), &timeout) && timeout.Timeout()
			if unsettled(c.err) != c.unsettled || broken(c.err) != c.broken || unsent(c.err) != c.unsent || waited != c.waited {
				t.Errorf("unsettled %t, broken %t, unsent %t, waited %t", unsettled(c.err), broken(c.err), unsent(c.err), waited)
			}
		})
	}
}
