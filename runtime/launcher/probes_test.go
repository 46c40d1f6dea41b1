package launcher

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/runtime/launcher/probe"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// scriptedAgent answers commands by what they contain.
type scriptedAgent struct {
	answers map[string]string
	asked   []string
}

func (a *scriptedAgent) AgentCommand(ctx context.Context, command string) (string, error) {
	a.asked = append(a.asked, command)
	for part, answer := range a.answers {
		if !strings.Contains(command, part) {
			continue
		}
		if answer == "" {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return answer, nil
	}
	return "", errors.New("no such command: " + command)
}

func exited(code int, said string) string {
	return fmt.Sprintf(`{"return":{"exited":true,"exitcode":%d,"out-data":%q}}`, code, base64.StdEncoding.EncodeToString([]byte(said)))
}

const (
	begun   = `{"return":{"pid":7}}`
	ongoing = `{"return":{"exited":false}}`
)

func TestAProbesAnswer(t *testing.T) {
	up := protocol.State{Phase: protocol.PhaseRunning, AgentConnected: true}
	paused := protocol.State{Phase: protocol.PhasePaused, AgentConnected: true}
	still := up
	still.Dumps = []protocol.Dump{{Volume: "dumps"}}
	frozen := up
	frozen.Frozen = true
	command := []string{"cat", "/tmp/healthy"}
	pings := map[string]string{"guest-ping": `{"return":{}}`}
	for name, c := range map[string]struct {
		state   protocol.State
		kind    probe.Kind
		command []string
		agent   map[string]string
		want    string // "" for healthy
	}{
		"the agent answers":                  {up, probe.Liveness, nil, pings, ""},
		"the agent does not":                 {up, probe.Liveness, nil, nil, "asking the guest agent for guest-ping"},
		"no agent":                           {protocol.State{Phase: protocol.PhaseRunning}, probe.Liveness, nil, pings, "not connected"},
		"the command ends well":              {up, probe.Readiness, command, map[string]string{`"guest-exec"`: begun, "guest-exec-status": exited(0, "")}, ""},
		"the command fails":                  {up, probe.Readiness, command, map[string]string{`"guest-exec"`: begun, "guest-exec-status": exited(1, "no such file\n")}, "cat ended with code 1 in the guest: no such file"},
		"the command cannot be started":      {up, probe.Readiness, command, map[string]string{`"guest-exec"`: `{"error":{"desc":"disabled"}}`}, "refused guest-exec: disabled"},
		"a paused guest is not ready":        {paused, probe.Readiness, nil, pings, "the guest is paused"},
		"nor is one that is being dumped":    {still, probe.Readiness, nil, pings, "its memory is dumped"},
		"which is not dead either":           {still, probe.Liveness, command, nil, ""},
		"a paused guest is not dead":         {paused, probe.Liveness, command, nil, ""},
		"a guest that begins is not ready":   {protocol.State{Phase: protocol.PhaseStarting}, probe.Readiness, nil, nil, "not running"},
		"a guest that begins is not dead":    {protocol.State{}, probe.Liveness, nil, nil, ""},
		"frozen file systems run no command": {frozen, probe.Liveness, command, pings, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProber(&scriptedAgent{answers: c.agent}, func() protocol.State { return c.state })
			got := p.answer(t.Context(), probe.Question{Kind: c.kind, Command: c.command, TimeoutSeconds: 1}) // which is the asker's bound
			if got.Healthy != (c.want == "") || !strings.Contains(got.Why, c.want) {
				t.Errorf("got %+v, want %q", got, c.want)
			}
		})
	}
}

func TestACommandThatGoesOnIsNotStartedAgain(t *testing.T) {
	agent := &scriptedAgent{answers: map[string]string{`"guest-exec"`: begun, "guest-exec-status": ""}}
	p := newProber(agent, func() protocol.State { return protocol.State{Phase: protocol.PhaseRunning, AgentConnected: true} })
	question := probe.Question{Kind: probe.Liveness, Command: []string{"sleep", "60"}, TimeoutSeconds: 1}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if got := p.answer(late, question); got.Healthy || !strings.Contains(got.Why, "waiting for sleep") {
		t.Errorf("the first: %+v", got)
	}
	agent.answers["guest-exec-status"], agent.asked = ongoing, nil
	if got := p.answer(t.Context(), question); got.Healthy || !strings.Contains(got.Why, "still runs") || len(agent.asked) != 1 {
		t.Errorf("while it runs: %+v, asked %q", got, agent.asked)
	}
	agent.answers["guest-exec-status"] = exited(0, "")
	if got := p.answer(t.Context(), question); !got.Healthy {
		t.Errorf("after its end: %+v", got)
	}
}
