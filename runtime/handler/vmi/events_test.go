package vmi

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

func TestTheEndOfAGuestIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		state protocol.State
		phase v1.VirtualMachineInstancePhase
		want  string
	}{
		"a panic": {
			protocol.State{Phase: protocol.PhaseCrashed, Reason: ReasonGuestPanicked, Message: "the guest's kernel panicked: no disk"},
			v1.Failed, "Warning GuestPanicked the guest's kernel panicked: no disk",
		},
		"QEMU's end for a cause": {
			protocol.State{Phase: protocol.PhaseCrashed, Reason: "QEMUEnded", Message: "QEMU was ended by signal 6 (aborted); it said: assertion failed"}, v1.Failed,
			"Warning Stopped The VirtualMachineInstance crashed. QEMU was ended by signal 6 (aborted); it said: assertion failed",
		},
		"QEMU's end":     {protocol.State{Phase: protocol.PhaseCrashed, Reason: "QEMUEnded"}, v1.Failed, "Warning Stopped The VirtualMachineInstance crashed."},
		"a failed start": {protocol.State{Phase: protocol.PhaseFailed, Reason: "VolumesNotReady", Message: "no answers"}, v1.Failed, "Warning SyncFailed VolumesNotReady: no answers"},
		"a disk in use": {
			protocol.State{Phase: protocol.PhaseStarting, Reason: protocol.ReasonDiskInUse, Message: "the disk of volume data is in use"},
			v1.Running, "Warning DiskInUse the disk of volume data is in use", // the phase before is the phase after
		},
		"a power-off": {protocol.State{Phase: protocol.PhaseShutdown}, v1.Succeeded, "Normal Stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(5)
			r := &Reconciler{Recorder: recorder}
			s := &scope{vmi: &v1.VirtualMachineInstance{}, view: session.View{State: &c.state}}
			r.tellPhase(s, &runtimeStatus{Phase: v1.Running}, &runtimeStatus{Phase: c.phase})
			close(recorder.Events)
			var got []string
			for event := range recorder.Events {
				got = append(got, event)
			}
			if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("got %q, want one that begins with %q", got, c.want)
			}
		})
	}
}

func TestALostFilesystemIsToldOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(5)
	r := &Reconciler{Recorder: recorder}
	s := &scope{vmi: &v1.VirtualMachineInstance{}}
	served := &runtimeStatus{VolumeStatus: []v1.VolumeStatus{{Name: "settings"}, {Name: "work"}}}
	lost := &runtimeStatus{VolumeStatus: []v1.VolumeStatus{{Name: "settings"}, {Name: "work", Reason: reasonFilesystemLost, Message: "it ended"}}}
	r.tellFilesystems(s, served, served)
	r.tellFilesystems(s, served, lost)
	r.tellFilesystems(s, lost, lost)
	close(recorder.Events)
	var got []string
	for event := range recorder.Events {
		got = append(got, event)
	}
	if len(got) != 1 || !strings.HasPrefix(got[0], "Warning FilesystemLost it ended") {
		t.Errorf("told %q", got)
	}
}

func TestANoteIsNoLongerThanTheAPIServerTakes(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	r := &Reconciler{Recorder: recorder}
	r.event(&v1.VirtualMachineInstance{}, "Warning", v1.Stopped, messageCrashed+strings.Repeat(" ä", 2000))
	note := strings.TrimPrefix(<-recorder.Events, "Warning Stopped ")
	if len(note) > maxNote || len(note) < maxNote-4 || !utf8.ValidString(note) || !strings.HasPrefix(note, messageCrashed) || !strings.HasSuffix(note, "…") {
		t.Errorf("%d bytes: %q", len(note), note)
	}
}
