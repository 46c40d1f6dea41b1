package launcher

import (
	"testing"
	"time"
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
	watch.end()
	select {
	case <-watch.timer.C:
	case <-time.After(time.Minute):
		t.Fatal("the second question was forgotten")
	}
	if !watch.begin() {
		t.Error("the second question is not asked")
	}
	watch.end()
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
	watch.end()
	if !watch.begin() || watch.timer.Stop() {
		t.Error("something is planned after the last question")
	}
}
