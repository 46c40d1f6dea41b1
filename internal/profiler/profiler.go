// Package profiler has a program tell what it spends its processor time and memory on, when virt-api asks: the part of the
// cluster profiler that is in each component. What it keeps is bounded in size and in time.
package profiler

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

const (
	// Longest is how long the use of processors is recorded when nobody stops it.
	Longest = 15 * time.Minute
	// kept is how long what was recorded is kept for who fetches it.
	kept = time.Hour
	// MostBytes bounds the profiles of one program, in bytes as they are.
	MostBytes = 12 << 20
	// mostOfCPU bounds the record of processors among them.
	mostOfCPU = 8 << 20
)

// cpuProfile is the name of the profile of processors, as clients save it.
const cpuProfile = "cpu.pprof"

// lookups are the profiles that the runtime always has; suffix makes names of files of them, as clients save them.
var lookups = []string{"heap", "goroutine", "allocs", "threadcreate", "block", "mutex"}

const suffix = ".pprof"

// errTooLarge says that a profile does not fit.
var errTooLarge = errors.New("it is larger than what one program may answer")

// Profiler records what the program that it is in does. The zero value is ready.
type Profiler struct {
	mu sync.Mutex
	// recording is what is being recorded of processors; nil while nothing is.
	recording *bounded
	// recorded is what was.
	recorded *bounded
	// later ends the recording, or forgets what was recorded.
	later *time.Timer
}

// Start begins to record the use of processors, and forgets what was recorded before. It ends with Stop, and after Longest.
func (p *Profiler) Start() error { return p.start(Longest) }

func (p *Profiler) start(longest time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	p.recorded = nil
	recording := &bounded{room: mostOfCPU}
	if err := pprof.StartCPUProfile(recording); err != nil {
		return fmt.Errorf("recording the use of processors: %w", err)
	}
	p.recording = recording
	p.after(longest, func() {
		if p.recording == recording {
			p.end()
		}
	})
	return nil
}

// Stop ends what Start began. That nothing is being recorded is no error.
func (p *Profiler) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// Dump returns what was recorded of processors since the last start, if it was stopped, and what else the runtime knows at this moment,
// by name.
func (p *Profiler) Dump() (map[string][]byte, error) {
	p.mu.Lock()
	recorded := p.recorded
	p.mu.Unlock()
	profiles := map[string][]byte{}
	room := MostBytes
	if recorded != nil {
		if recorded.full {
			return nil, fmt.Errorf("profile %s: %w; record for a shorter time", cpuProfile, errTooLarge)
		}
		profiles[cpuProfile] = recorded.Bytes()
		room -= recorded.Len()
	}
	runtime.GC() // the heap is told as of the last collection
	for _, name := range lookups {
		into := &bounded{room: room}
		if err := pprof.Lookup(name).WriteTo(into, 0); err != nil {
			return nil, fmt.Errorf("profile %s: %w", name+suffix, err)
		}
		profiles[name+suffix] = into.Bytes()
		room -= into.Len()
	}
	return profiles, nil
}

// end stops recording; p.mu is held.
func (p *Profiler) end() {
	if p.recording == nil {
		return
	}
	pprof.StopCPUProfile() // returns when all is written
	recorded := p.recording
	p.recording, p.recorded = nil, recorded
	p.after(kept, func() {
		if p.recorded == recorded {
			p.recorded = nil
		}
	})
}

// after has do called once wait has passed, with p.mu held, unless it is called again before.
func (p *Profiler) after(wait time.Duration, do func()) {
	if p.later != nil {
		p.later.Stop()
	}
	p.later = time.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		do()
	})
}

// bounded keeps what is written into it while there is room.
type bounded struct {
	bytes.Buffer
	room int
	full bool
}

var _ io.Writer = (*bounded)(nil)

// Write refuses what there is no room for.
func (b *bounded) Write(data []byte) (int, error) {
	if b.full = b.full || b.Len()+len(data) > b.room; b.full {
		return 0, errTooLarge
	}
	return b.Buffer.Write(data) //nolint:wrapcheck // it never fails
}
