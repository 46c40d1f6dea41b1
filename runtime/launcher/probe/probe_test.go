package probe_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/launcher/probe"
)

// serve serves answer and returns the socket.
func serve(t *testing.T, answer func(context.Context, probe.Question) probe.Answer) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "probe.sock")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- probe.Serve(ctx, path, answer, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("unix", path)
		if err == nil {
			_ = conn.Close()
			return path
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestAQuestionIsAnswered(t *testing.T) {
	var got probe.Question
	path := serve(t, func(_ context.Context, question probe.Question) probe.Answer {
		got = question
		return probe.Answer{Why: "the disk is full"}
	})
	want := probe.Question{Kind: probe.Liveness, Command: []string{"cat", "/tmp/healthy"}, TimeoutSeconds: 300}
	answer, err := probe.Ask(t.Context(), path, want)
	if err != nil || answer.Healthy || answer.Why != "the disk is full" {
		t.Errorf("got %+v, %v", answer, err)
	}
	if got.Kind != want.Kind || strings.Join(got.Command, " ") != "cat /tmp/healthy" || got.TimeoutSeconds != 300 {
		t.Errorf("asked %+v", got)
	}
}

func TestTheGuestHasTheProbesTimeAndNoMore(t *testing.T) {
	path := serve(t, func(ctx context.Context, _ probe.Question) probe.Answer {
		<-ctx.Done()
		return probe.Answer{Why: "too slow"}
	})
	began := time.Now()
	answer, err := probe.Ask(t.Context(), path, probe.Question{Kind: probe.Readiness, TimeoutSeconds: 1})
	if err != nil || answer.Why != "too slow" || time.Since(began) < time.Second {
		t.Errorf("got %+v, %v after %s", answer, err, time.Since(began))
	}
}

func TestProbesDoNotPileUp(t *testing.T) {
	held := make(chan struct{})
	defer close(held)
	entered := make(chan struct{}, 10)
	path := serve(t, func(context.Context, probe.Question) probe.Answer {
		entered <- struct{}{}
		<-held
		return probe.Answer{}
	})
	for range 4 {
		go func() {
			// One that is refused asks again: the connection that found the socket may not have given its place back yet.
			for t.Context().Err() == nil {
				if _, err := probe.Ask(t.Context(), path, probe.Question{TimeoutSeconds: 60}); err == nil {
					return
				}
			}
		}()
		select {
		case <-entered:
		case <-time.After(3 * time.Minute):
			t.Fatal("one of four questions is not taken in")
		}
	}
	if _, err := probe.Ask(t.Context(), path, probe.Question{TimeoutSeconds: 60}); err == nil {
		t.Error("a fifth question is taken in")
	}
}

func TestWithoutALauncherAProbeFails(t *testing.T) {
	if _, err := probe.Ask(t.Context(), filepath.Join(t.TempDir(), "none"), probe.Question{}); err == nil {
		t.Error("no error")
	}
}
