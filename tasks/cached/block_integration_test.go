//go:build integration

package cached_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/declare/rehearsal"
)

// sameSize is a tool that writes its commands over the begin of the disk: a device does not grow.
func sameSize(_ context.Context, disk, commands string) error {
	file, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(commands)
	return errors.Join(err, file.Close())
}

// devices makes the stage's claims devices.
func (s *stage) devices() {
	s.block, s.tool = true, sameSize
	for _, claim := range []string{"a", "b"} {
		s.claim(claim, "vendor's disk")
	}
}

// marks are the annotations of a claim that the cache writes.
func (s *stage) marks(claim string) (half, digest string) {
	s.t.Helper()
	var pvc corev1.PersistentVolumeClaim
	s.must(s.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: claim}, &pvc))
	return pvc.Annotations[stepcache.AnnotationHalf], pvc.Annotations[names.AnnotationDigest]
}

func deviceOnce(t *testing.T, s *stage) {
	s.devices()
	first := s.succeeds(s.change, map[string]any{"pvc": "a", "virtCommands": "HELLO"})
	second := s.succeeds(s.change, map[string]any{"pvc": "b", "virtCommands": "HELLO"})
	s.expect("second", second, map[string]string{"cached": "true", "digest": first["digest"]})
	if s.worked.Load() != 1 || s.content("b") != s.content("a") {
		t.Errorf("the tool ran %d times, the device is %q", s.worked.Load(), s.content("b"))
	}
	if half, digest := s.marks("b"); half != "" || digest != first["digest"] {
		t.Errorf("the claim says %q and %q", half, digest)
	}
}

// interrupted leaves claim b half-way to the result of HELLO.
func (s *stage) interrupted() rehearsal.Run {
	s.t.Helper()
	s.devices()
	s.succeeds(s.change, map[string]any{"pvc": "a", "virtCommands": "HELLO"})
	s.mu.Lock()
	s.kill = true
	s.mu.Unlock()
	run := rehearsal.Run{Task: s.change, Namespace: s.namespace, Name: "run-b", UID: "uid-b", Params: map[string]any{"pvc": "b", "virtCommands": "HELLO"}}
	o := s.Run(s.t, run)
	if o.Err == nil || !strings.Contains(o.Err.Error(), "a retry of the task finishes it") || s.worked.Load() != 1 {
		s.t.Fatalf("a worker that was killed: %v\n%s", o.Err, o.Log)
	}
	if half, digest := s.marks("b"); half == "" || digest != "" || s.content("b") == s.content("a") {
		s.t.Fatalf("the claim says %q and %q, its disk is %q", half, digest, s.content("b"))
	}
	run.Retry = 1
	return run
}

func deviceKilled(t *testing.T, s *stage) {
	retry := s.interrupted()
	other := s.run(s.change, map[string]any{"pvc": "b", "virtCommands": "other"})
	if other.Code != declare.CodeUsage || other.Err == nil || !strings.Contains(other.Err.Error(), "half-way to the result of another step") || s.worked.Load() != 1 {
		t.Errorf("another step on it: %d, %v", other.Code, other.Err)
	}
	o := s.Run(t, retry)
	if o.Err != nil || o.Results["cached"] != "true" || s.content("b") != s.content("a") || s.worked.Load() != 1 {
		t.Errorf("the retry: %v, %v, the device is %q", o.Err, o.Results, s.content("b"))
	}
	if half, digest := s.marks("b"); half != "" || digest != o.Results["digest"] {
		t.Errorf("the claim says %q and %q", half, digest)
	}
}

func deviceLost(t *testing.T, s *stage) {
	retry := s.interrupted()
	s.poison(s.entries()[0].Name)
	o := s.Run(t, retry)
	if o.Code != declare.CodeUsage || o.Err == nil || !strings.Contains(o.Err.Error(), "was deleted since: make the claim anew") || s.worked.Load() != 1 {
		t.Errorf("%d, %v", o.Code, o.Err)
	}
	if left := s.entries(); len(left) != 0 {
		t.Errorf("the poisoned entry is still there: %+v", left)
	}
}

func devicePoisoned(t *testing.T, s *stage) {
	s.devices()
	s.succeeds(s.change, map[string]any{"pvc": "a", "virtCommands": "HELLO"})
	s.poison(s.entries()[0].Name)
	s.expect("after it", s.succeeds(s.change, map[string]any{"pvc": "b", "virtCommands": "HELLO"}), map[string]string{"cached": "false"})
	if half, _ := s.marks("b"); half != "" || s.worked.Load() != 2 || s.content("b") != s.content("a") || len(s.entries()) != 1 {
		t.Errorf("the claim says %q, the tool ran %d times, the device is %q", half, s.worked.Load(), s.content("b"))
	}
}

func diskWithoutClones(t *testing.T, s *stage) {
	s.claim("a", "disk")
	s.hold = "CSI driver does not support clone operation: controller CLONE_VOLUME capability is not reported"
	begun := time.Now()
	o := s.run(s.change, map[string]any{"pvc": "a", "virtCommands": "hello"})
	if o.Err != nil || s.content("a") != "disk\nhello" || len(s.entries()) != 0 || time.Since(begun) > bound {
		t.Errorf("after %s: %v, %d entries", time.Since(begun), o.Err, len(s.entries()))
	}
	if !strings.Contains(o.Log, "the step's result is not kept") || !strings.Contains(o.Log, "CLONE_VOLUME capability is not reported") {
		t.Errorf("nobody is told: %s", o.Log)
	}
}

// Entry and pod go while the pod reads: whether its disk came or not, the step was done once.
func diskEntryDeleted(t *testing.T, s *stage) {
	for name, c := range map[string]struct {
		lost   lostWorker
		cached string
		worked int32
	}{"before": {beforeWork, "false", 1}, "after": {afterWork, "true", 0}} {
		commands := "hello " + name
		s.claim("a-"+name, "disk")
		s.claim("b-"+name, "disk")
		s.succeeds(s.change, map[string]any{"pvc": "a-" + name, "virtCommands": commands})
		s.mu.Lock()
		s.lost = c.lost
		s.mu.Unlock()
		worked := s.worked.Load()
		o := s.run(s.change, map[string]any{"pvc": "b-" + name, "virtCommands": commands})
		if o.Err != nil || o.Results["cached"] != c.cached || s.content("b-"+name) != "disk\n"+commands || s.worked.Load() != worked+c.worked {
			t.Errorf("lost %s its work: %v, %v, the disk is %q\n%s", name, o.Err, o.Results, s.content("b-"+name), o.Log)
		}
	}
}

// The worker of a killed run writes while the next try begins: what it puts there is no base of a step.
func diskWorkerOutlives(t *testing.T, s *stage) {
	s.claim("a", "disk")
	s.claim("b", "disk")
	params := map[string]any{"pvc": "a", "virtCommands": "hello"}
	s.succeeds(s.change, params)
	s.mu.Lock()
	s.gate = make(chan struct{})
	s.mu.Unlock()
	const worker = 3 // the write to the API that makes it, after the entry's use and the claim's mark
	run := rehearsal.Run{Task: s.change, Namespace: s.namespace, Name: "run-b", UID: "uid-outlives", Params: s.with(params, map[string]any{"pvc": "b"}), Kill: worker, Lost: true}
	if o := s.Run(t, run); !o.Killed {
		t.Fatalf("not killed: %v", o.Err)
	}
	run.Kill, run.Retry, run.Watching = 0, 1, func() { close(s.gate) }
	o := s.Run(t, run)
	if o.Err != nil || o.Results["cached"] != "true" || s.content("b") != "disk\nhello" || s.worked.Load() != 1 {
		t.Errorf("%v, %v, the disk is %q", o.Err, o.Results, s.content("b"))
	}
	if !strings.Contains(o.Log, "an earlier try of the step put a cached result into the claim") {
		t.Errorf("it did not wait: %s", o.Log)
	}
}

// A run's pod is killed before and after each of its writes, and tried again: a step that is missed, a
// result that is taken into a file, and one that is taken onto a device.
func killed(t *testing.T, r *rehearsal.Stage) {
	for name, c := range map[string]struct{ block, there bool }{"miss": {false, false}, "hit": {false, true}, "device": {true, true}} {
		t.Run(name, func(t *testing.T) {
			s, n, doubled := newStage(t, r), 0, 0
			if c.block {
				s.block, s.tool = true, sameSize
			}
			fresh := func(t *testing.T) rehearsal.Run {
				n++ // other claims, and other commands: nothing of the tries before is of use
				id, params := fmt.Sprint(n), map[string]any{"pvc": "a" + fmt.Sprint(n), "virtCommands": fmt.Sprintf("HELLO %d", n)}
				s.claim("a"+id, "vendor's disk")
				s.claim("b"+id, "vendor's disk")
				if c.there {
					s.succeeds(s.change, params)
				}
				params = s.with(params, map[string]any{"pvc": "b" + id})
				return rehearsal.Run{Task: s.change, Namespace: s.namespace, Name: "run-b" + id, UID: "uid-b" + id, Params: params}
			}
			r.Killed(t, fresh, func(t *testing.T, run rehearsal.Run, o rehearsal.Outcome) {
				claim, commands := run.Params["pvc"].(string), run.Params["virtCommands"].(string)
				want := "vendor's disk\n" + commands
				if c.block {
					want = commands + "vendor's disk"[len(commands):]
				}
				if o.Err != nil || o.Results["digest"] == "" || o.Results["cached"] != fmt.Sprint(c.there) && !c.block {
					t.Errorf("%v, %v\n%s", o.Err, o.Results, o.Log)
				}
				if got := s.content(claim); got == want+"\n"+commands {
					doubled++ // the pod was killed between the end of the tool and the note of it
				} else if got != want {
					t.Errorf("the disk is %q, want %q", got, want)
				}
				if half, digest := s.marks(claim); half != "" || digest != o.Results["digest"] {
					t.Errorf("the claim says %q and %q", half, digest)
				}
			})
			if doubled > 1 || c.there && doubled > 0 {
				t.Errorf("in %d tries the tool ran twice; only one that is killed before it is noted may do so", doubled)
			}
		})
	}
}
