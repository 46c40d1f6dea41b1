package launcher

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/launcher/probe"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// maxProbeWords is how much of what a command said goes into the kubelet's event, in bytes.
const maxProbeWords = 1024

// prober puts questions of probes to the guest.
type prober struct {
	channel guestagent.Channel
	// state is what was told of the machine last.
	state func() protocol.State

	mu sync.Mutex
	// left are commands that outlived their probe: the agent cannot end them, so the next
	// probe of the kind does not start another.
	left map[probe.Kind]int64
}

func newProber(channel guestagent.Channel, state func() protocol.State) *prober {
	return &prober{channel: channel, state: state, left: map[probe.Kind]int64{}}
}

// answer says whether the guest is well. A guest that does not run, because it has not
// begun or is paused, is not ready, and there is nothing in it to be found dead.
func (p *prober) answer(ctx context.Context, question probe.Question) probe.Answer {
	state := p.state()
	switch {
	case (state.Phase != protocol.PhaseRunning || dumping(state)) && question.Kind == probe.Liveness:
		return probe.Answer{Healthy: true}
	case dumping(state):
		return probe.Answer{Why: "the guest stands still while its memory is dumped"}
	case state.Phase == protocol.PhasePaused:
		return probe.Answer{Why: "the guest is paused"}
	case state.Phase != protocol.PhaseRunning:
		return probe.Answer{Why: "the guest is not running"}
	case !state.AgentConnected:
		return unhealthy(errNoAgent)
	case len(question.Command) == 0 || state.Frozen: // with frozen file systems the agent runs nothing
		if err := guestagent.Ping(ctx, p.channel); err != nil {
			return unhealthy(err)
		}
		return probe.Answer{Healthy: true}
	}
	return p.run(ctx, question)
}

// run runs the question's command in the guest.
func (p *prober) run(ctx context.Context, question probe.Question) probe.Answer {
	command := question.Command[0]
	if p.stillRuns(ctx, question.Kind) {
		return probe.Answer{Why: fmt.Sprintf("%s of an earlier probe still runs in the guest", command)}
	}
	pid, err := guestagent.Start(ctx, p.channel, protocol.GuestExec{Command: command, Args: question.Command[1:]})
	if err != nil {
		return unhealthy(err)
	}
	result, err := guestagent.Wait(ctx, p.channel, pid)
	if err != nil {
		p.mu.Lock()
		p.left[question.Kind] = pid
		p.mu.Unlock()
		return unhealthy(fmt.Errorf("waiting for %s in the guest, at most %d s: %w", command, question.TimeoutSeconds, err))
	}
	if result.ExitCode != 0 {
		return probe.Answer{Why: failedWords(command, result)}
	}
	return probe.Answer{Healthy: true}
}

// stillRuns says whether the command of an earlier probe does. What the agent knows no
// more, as after a restart of the guest, has ended.
func (p *prober) stillRuns(ctx context.Context, kind probe.Kind) bool {
	p.mu.Lock()
	pid, found := p.left[kind]
	p.mu.Unlock()
	if !found {
		return false
	}
	if running, err := guestagent.Running(ctx, p.channel, pid); err == nil && running {
		return true
	}
	p.mu.Lock()
	delete(p.left, kind)
	p.mu.Unlock()
	return false
}

func failedWords(command string, result protocol.GuestExecResult) string {
	words := fmt.Sprintf("%s ended with code %d in the guest", command, result.ExitCode)
	said := strings.TrimSpace(result.Stdout + result.Stderr)
	if len(said) > maxProbeWords {
		said = said[:maxProbeWords]
	}
	if said != "" {
		words += ": " + said
	}
	return words
}

func unhealthy(err error) probe.Answer { return probe.Answer{Why: err.Error()} }
