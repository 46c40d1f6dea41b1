package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

const (
	// beat is the time between two questions for a VM's health.
	beat = 5 * time.Second
	// patience is how long a part may leave a question without an answer before that is told: a
	// busy node makes everybody slow.
	patience = 10 * time.Second
)

// ErrSilent is returned by calls that need a part of the VM which does not answer: they would only
// wait, and pile up.
var ErrSilent = errors.New("does not answer")

// watch asks the launcher for the VM's health, one question at a time, until ctx is done.
func (s *Session) watch(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			s.forgive(now, now.Sub(last)-beat)
			last = now
			s.look(ctx, now)
		}
	}
}

// forgive leaves out a time until now for which this process itself had no processor: an answer may be waiting to be read. What was
// found silent before stays so.
func (s *Session) forgive(now time.Time, stood time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stood < beat || s.silence != nil {
		return
	}
	later := func(since time.Time) time.Time {
		if since = since.Add(stood); since.After(now) {
			return now
		}
		return since
	}
	s.absent = later(s.absent)
	if s.launcher != nil && !s.launcher.asked.IsZero() {
		s.launcher.asked = later(s.launcher.asked)
	}
}

// look asks anew, unless a question is open, and tells what has become of the answers.
func (s *Session) look(ctx context.Context, now time.Time) {
	s.mu.Lock()
	if c := s.launcher; c != nil && c.asked.IsZero() {
		c.asked = now
		go s.ask(ctx, c)
	}
	news := s.judge(now)
	s.mu.Unlock()
	if news {
		s.changed()
	}
}

// ask asks a launcher for the VM's health. A refusal is an answer, too: of a launcher that does not
// know the question.
func (s *Session) ask(ctx context.Context, c *client) {
	var health protocol.Health
	err := c.conn.Call(ctx, protocol.TypeHealth, nil, &health)
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	c.asked, c.told = time.Time{}, nil
	if err == nil {
		c.told = health.Silent
	}
	news := s.judge(time.Now()) || !c.heard
	c.heard = true
	s.mu.Unlock()
	if news {
		s.changed()
	}
}

// judge notes what is silent by now and says whether that is news. The caller has the lock.
func (s *Session) judge(now time.Time) bool {
	found := s.silent(now)
	old := s.silence
	switch s.silence = found; {
	case found != nil && old == nil:
		close(s.silenced)
	case found == nil && old != nil:
		s.silenced = make(chan struct{})
	}
	if found == nil || old == nil {
		return found != old
	}
	return found.Part != old.Part || !found.Since.Equal(old.Since)
}

// silent is what has been silent for long enough.
func (s *Session) silent(now time.Time) *protocol.Silence {
	var found *protocol.Silence
	switch c := s.launcher; {
	case c == nil:
		found = &protocol.Silence{Part: protocol.PartLauncher, Since: s.absent}
	case !c.asked.IsZero() && now.Sub(c.asked) >= patience:
		found = &protocol.Silence{Part: protocol.PartLauncher, Since: c.asked}
	default:
		found = c.told
	}
	if found == nil || now.Sub(found.Since) < patience {
		return nil
	}
	return found
}

// answers returns an error when one of parts is known not to answer.
func (s *Session) answers(parts ...protocol.Part) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silence == nil || !slices.Contains(parts, s.silence.Part) {
		return nil
	}
	return fmt.Errorf("%s of the VM %w since %s; look at its conditions, and try again when it does",
		s.silence.Part, ErrSilent, s.silence.Since.UTC().Format(time.RFC3339))
}

// untilSilence is ctx, which ends with ErrSilent as its cause when a part of the VM is found silent.
func (s *Session) untilSilence(ctx context.Context) (context.Context, func()) {
	s.mu.Lock()
	silenced := s.silenced
	s.mu.Unlock()
	ctx, stop := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-ctx.Done():
		case <-silenced:
			stop(ErrSilent)
		}
	}()
	return ctx, func() { stop(nil) }
}
