package launcher

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/launcher/link"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// A lease may come while the agent still answers, with no address yet.
func TestAQuestionThatFallsDueDuringAnotherIsAskedAfterIt(t *testing.T) {
	watch := agentWatch{timer: stoppedTimer(), next: len(agentPauses)}
	defer watch.stop()
	if !watch.begin() {
		t.Fatal("the first question is not asked")
	}
	if watch.begin() {
		t.Error("two questions at once")
	}
	watch.end(true)
	select {
	case <-watch.timer.C:
	case <-time.After(time.Minute):
		t.Fatal("the second question was forgotten")
	}
	if !watch.begin() {
		t.Error("the second question is not asked")
	}
	watch.end(true)
	select {
	case <-watch.timer.C:
		t.Error("a question that nobody needs")
	default:
	}
}

func TestQuestionsFollowTheirPauses(t *testing.T) {
	watch := agentWatch{timer: stoppedTimer(), next: len(agentPauses) - 2}
	defer watch.stop()
	if !watch.begin() || !watch.timer.Stop() {
		t.Error("the last question is not planned by the one before")
	}
	watch.end(true)
	if !watch.begin() || watch.timer.Stop() {
		t.Error("something is planned after the last question")
	}
}

func TestAnAgentThatHasNotToldAllIsAskedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := agentWatch{timer: stoppedTimer()}
		defer watch.stop()
		began := time.Now()
		watch.timer.Reset(agentPauses[0])
		var asked []time.Duration
		for range 9 {
			<-watch.timer.C
			asked = append(asked, time.Since(began))
			if !watch.begin() {
				t.Fatal("two questions at once")
			}
			watch.end(false)
		}
		seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
		want := []time.Duration{0, seconds(3), seconds(23), seconds(43), seconds(83), seconds(163), seconds(323), seconds(623), seconds(923)}
		if !slices.Equal(asked, want) {
			t.Errorf("it is asked after %v, want %v", asked, want)
		}
		<-watch.timer.C
		watch.begin()
		watch.end(true)
		if watch.timer.Stop() {
			t.Error("it is asked on once it has told all")
		}
	})
}

func TestWhatTheAgentToldBeforeIsKeptWhereItDoesNotAnswer(t *testing.T) {
	m := newMachine(Options{Log: slog.New(slog.DiscardHandler)}, hypervisor.New(hypervisor.Options{}), nil, newEndings())
	m.link = link.New(link.Options{})
	defer m.agent.stop()
	m.state.AgentConnected = true
	eth0 := []protocol.GuestInterface{{Name: "eth0", IPs: []string{"10.0.2.2"}}}
	told := guestagent.Report{Version: "10", OS: &v1.VirtualMachineInstanceGuestOSInfo{ID: "debian"}, Interfaces: eth0, Whole: true}
	m.learn(told, nil)
	m.learn(guestagent.Report{Version: "10"}, errors.New("the agent is silent"))
	if m.state.GuestOS == nil || len(m.state.Interfaces) != 1 {
		t.Errorf("after a question without an answer: %+v", m.state)
	}
	m.learn(guestagent.Report{Version: "10", Whole: true}, nil)
	if m.state.GuestOS != nil || m.state.Interfaces != nil {
		t.Errorf("after an agent that knows neither: %+v", m.state)
	}
}
