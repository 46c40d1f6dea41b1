package session

import (
	"errors"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

func TestSilenceIsToldAfterItsPatience(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	told := func(part protocol.Part, since int) *protocol.Silence {
		return &protocol.Silence{Part: part, Since: ago(since)}
	}
	for name, c := range map[string]struct {
		launcher *client
		absent   time.Time
		want     *protocol.Silence
	}{
		"it has just gone":                 {absent: ago(9)},
		"it stays away":                    {absent: ago(10), want: told(protocol.PartLauncher, 10)},
		"nothing was asked":                {launcher: &client{}, absent: ago(100)},
		"it was asked just now":            {launcher: &client{asked: ago(9)}},
		"it does not answer":               {launcher: &client{asked: ago(11)}, want: told(protocol.PartLauncher, 11)},
		"QEMU is slow":                     {launcher: &client{told: told(protocol.PartQEMU, 9)}},
		"QEMU is silent":                   {launcher: &client{told: told(protocol.PartQEMU, 30)}, want: told(protocol.PartQEMU, 30)},
		"libvirt is, as the open one will": {launcher: &client{asked: ago(2), told: told(protocol.PartLibvirt, 30)}, want: told(protocol.PartLibvirt, 30)},
		"it went silent after QEMU":        {launcher: &client{asked: ago(12), told: told(protocol.PartQEMU, 30)}, want: told(protocol.PartLauncher, 12)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(Pod{}, func() {})
			s.launcher, s.absent = c.launcher, c.absent
			news := s.judge(now)
			got := s.View().Silence
			if news != (c.want != nil) || (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Fatalf("got %+v (news: %v), want %+v", got, news, c.want)
			}
			if s.judge(now) {
				t.Error("the same is news again")
			}
			s.launcher = &client{}
			if news := s.judge(now); news != (c.want != nil) || s.View().Silence != nil {
				t.Errorf("the end of a silence: news %v, %+v", news, s.View().Silence)
			}
		})
	}
}

func TestWhatNeedsASilentPartIsRefused(t *testing.T) {
	s := newSession(Pod{}, func() {})
	s.launcher = &client{told: &protocol.Silence{Part: protocol.PartLibvirt, Since: time.Now().Add(-time.Minute)}}
	ctx, stop := s.untilSilence(t.Context())
	defer stop()
	s.judge(time.Now())
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("who waits is not told")
	}
	if err := s.Pause(t.Context()); !errors.Is(err, ErrOldLauncher) {
		t.Errorf("an old launcher: %v", err)
	}
	if err := s.answers(protocol.PartQEMU, protocol.PartLauncher); err != nil {
		t.Errorf("what goes around libvirt: %v", err)
	}
	if err := s.answers(protocol.PartLibvirt); !errors.Is(err, ErrSilent) {
		t.Errorf("what needs libvirt: %v", err)
	}
}

func TestATimeInWhichTheHandlerStoodStillIsNobodysSilence(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for stood, silent := range map[time.Duration]bool{0: true, beat / 2: true, 30 * time.Second: false} {
		for name, launcher := range map[string]*client{"that was asked": {asked: now.Add(-30 * time.Second)}, "that is away": nil} {
			s := newSession(Pod{}, func() {})
			s.launcher, s.absent = launcher, now.Add(-30*time.Second)
			s.forgive(now, stood)
			if s.judge(now); (s.View().Silence != nil) != silent {
				t.Errorf("a launcher %s, after the handler stood still for %s: %+v", name, stood, s.View().Silence)
			}
			before := s.View().Silence
			s.forgive(now, time.Minute)
			if s.judge(now); silent && (s.View().Silence == nil || *s.View().Silence != *before) {
				t.Errorf("a silence of a launcher %s that was known became %+v", name, s.View().Silence)
			}
		}
	}
}
