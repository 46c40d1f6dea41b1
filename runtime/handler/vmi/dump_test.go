package vmi

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

const dumpName = "web-dumps-20260102-030405.memory.dump"

// dumpScope is a pass over a running VMI whose memory is to be dumped, with what the launcher told
// of dumps to the volume.
func dumpScope(dumps ...protocol.Dump) *scope {
	s := lateScope(nil)
	s.vmi.Name = "web"
	source := &v1.MemoryDumpVolumeSource{}
	source.ClaimName = "dumps"
	s.vmi.Spec.Volumes = []v1.Volume{{Name: "dumps", VolumeSource: v1.VolumeSource{MemoryDump: source}}}
	for i := range dumps {
		dumps[i].Volume = "dumps"
	}
	s.view.State.Dumps = dumps
	return s
}

func (s *scope) heldSince(date time.Time) *scope {
	s.attached("dumps", "dumps", false)
	s.attachments[0].pod.CreationTimestamp = metav1.NewTime(date)
	return s
}

func (s *scope) without() *scope {
	s.vmi.Spec.Volumes = nil
	return s
}

func (s *scope) said(phase v1.VolumePhase) *scope {
	s.before = &runtimeStatus{VolumeStatus: []v1.VolumeStatus{{Name: "dumps", Phase: phase, Reason: "before"}}}
	return s
}

func TestStatusOfVolumesForMemoryDumps(t *testing.T) {
	date := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := date.Add(time.Minute)
	goesOn := protocol.Dump{File: dumpName, Began: date}
	done := protocol.Dump{File: dumpName, Began: date, Ended: &ended}
	failed := protocol.Dump{File: dumpName, Began: date, Ended: &ended, Error: "no space"}
	earlier := protocol.Dump{File: "web-dumps-20250102-030405.memory.dump", Began: date, Ended: &ended}
	refused := dumpScope().heldSince(date)
	refused.dumpRefused = "dumps"
	for name, c := range map[string]struct {
		scope *scope
		want  string
	}{
		"no claim":                       {dumpScope(), "Pending FailedPvcNotFound, PVC dumps not found"},
		"a claim that is not bound":      {dumpScope().claimed("dumps", corev1.ClaimPending, corev1.PersistentVolumeFilesystem), "Pending PVCNotReady, PVC is in phase Pending"},
		"a block device":                 {dumpScope().claimed("dumps", corev1.ClaimBound, corev1.PersistentVolumeBlock), "MemoryDumpFailed MemoryDumpError, Memory dump to pvc dumps failed: PVC dumps has the volume mode Block; a memory dump is a file, use a PVC of the mode Filesystem"},
		"an attachment pod that starts":  {dumpScope().heldSince(date), "Bound SuccessfulCreate, attachment pod hp-dumps is being started"},
		"a dump that goes on":            {dumpScope(goesOn).heldSince(date), "MemoryDumpInProgress VolumeMountedToPod, Memory dump Volume dumps is attached, getting memory dump"},
		"it does without its pod":        {dumpScope(goesOn), "MemoryDumpInProgress VolumeMountedToPod, Memory dump Volume dumps is attached, getting memory dump"},
		"it does without its volume":     {dumpScope(goesOn).heldSince(date).without(), "MemoryDumpInProgress VolumeMountedToPod, Memory dump Volume dumps is attached, getting memory dump"},
		"a dump that is whole":           {dumpScope(done).heldSince(date), "MemoryDumpCompleted VolumeReady, Memory dump to Volume dumps has completed successfully"},
		"one that failed":                {dumpScope(failed).heldSince(date), "MemoryDumpFailed MemoryDumpError, Memory dump to pvc dumps failed: no space"},
		"an earlier one is not this":     {dumpScope(earlier).heldSince(date), "Bound SuccessfulCreate, attachment pod hp-dumps is being started"},
		"a launcher that is too old":     {refused, "MemoryDumpFailed MemoryDumpError, Memory dump to pvc dumps failed: the VM was started by an earlier version, whose launcher cannot do this; restart the VM"},
		"what was said at the end stays": {dumpScope().heldSince(date).said(v1.MemoryDumpVolumeCompleted), "MemoryDumpCompleted before, "},
		"what was said before does not":  {dumpScope(done).heldSince(date).said(v1.MemoryDumpVolumeInProgress), "MemoryDumpCompleted VolumeReady, Memory dump to Volume dumps has completed successfully"},
		"it is taken away":               {dumpScope(done).heldSince(date).without().said(v1.MemoryDumpVolumeCompleted), "UnMountedFromPod VolumeUnMountedFromPod, Volume dumps has been unmounted from virt-launcher pod"},
	} {
		t.Run(name, func(t *testing.T) {
			all := volumeStatus(c.scope)
			if len(all) != 1 {
				t.Fatalf("got %+v", all)
			}
			if got := fmt.Sprintf("%s %s, %s", all[0].Phase, all[0].Reason, all[0].Message); all[0].Name != "dumps" || got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	info := volumeStatus(dumpScope(done).heldSince(date))[0].MemoryDumpVolume
	if info.TargetFileName != dumpName || !info.StartTimestamp.Time.Equal(date) || !info.EndTimestamp.Time.Equal(ended) || info.ClaimName != "dumps" {
		t.Errorf("got %+v", info)
	}
}
