package profiler

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// always are the profiles that are there without a recording.
var always = []string{"allocs.pprof", "block.pprof", "goroutine.pprof", "heap.pprof", "mutex.pprof", "threadcreate.pprof"}

func dumped(t *testing.T, p *Profiler) map[string][]byte {
	t.Helper()
	profiles, err := p.Dump()
	if err != nil {
		t.Fatal(err)
	}
	for name, profile := range profiles {
		unpacked, err := gzip.NewReader(bytes.NewReader(profile))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if content, err := io.ReadAll(unpacked); err != nil || len(content) == 0 {
			t.Errorf("%s holds %d bytes, %v", name, len(content), err)
		}
	}
	return profiles
}

func wantProfiles(t *testing.T, p *Profiler, want ...string) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(dumped(t, p))); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestProcessorsAreRecordedBetweenStartAndStop(t *testing.T) {
	p := &Profiler{}
	wantProfiles(t, p, always...)
	p.Stop() // nothing to stop is no error
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	wantProfiles(t, p, always...) // it is not whole yet
	p.Stop()
	with := slices.Insert(slices.Clone(always), 2, cpuProfile)
	wantProfiles(t, p, with...)
	wantProfiles(t, p, with...) // as often as it is asked for
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	wantProfiles(t, p, always...)
	if err := p.Start(); err != nil {
		t.Fatalf("starting again: %v", err)
	}
	p.Stop()
}

func TestAnotherRecordingOfTheSameProcessIsSaid(t *testing.T) {
	first, second := &Profiler{}, &Profiler{}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer first.Stop()
	if err := second.Start(); err == nil {
		t.Error("it records twice")
	}
	second.Stop()
	wantProfiles(t, second, always...)
}

func TestARecordingEndsByItselfAndIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Profiler{}
		if p.recording = (&bounded{room: 1}); p.recorded != nil {
			t.Fatal("something was recorded")
		}
		recording := p.recording // as Start leaves it, without the runtime's own goroutine, which waits for no clock of a test
		p.mu.Lock()
		p.after(Longest, func() { p.end() })
		p.mu.Unlock()
		time.Sleep(Longest + time.Second)
		if p.recording != nil || p.recorded != recording {
			t.Error("it is still recording after its time")
		}
		time.Sleep(kept + time.Second)
		if p.recorded != nil {
			t.Error("what was recorded is kept for ever")
		}
	})
}

func TestARecordingEndsAfterItsTime(t *testing.T) {
	p := &Profiler{}
	if err := p.start(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if _, recorded := dumped(t, p)[cpuProfile]; recorded {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it still records")
		}
	}
}

func TestTooMuchIsAnError(t *testing.T) {
	small := &bounded{room: 3}
	if _, err := small.Write([]byte("ab")); err != nil {
		t.Fatal(err)
	}
	if _, err := small.Write([]byte("cd")); !errors.Is(err, errTooLarge) || small.Len() != 2 {
		t.Errorf("got %v, %d bytes", err, small.Len())
	}
	if _, err := small.Write([]byte("e")); err == nil {
		t.Error("it goes on after a gap")
	}
	if _, err := (&Profiler{recorded: small}).Dump(); !errors.Is(err, errTooLarge) {
		t.Errorf("got %v", err)
	}
}
