package vmi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/backup"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// backupScope is a pass over a running VMI that is asked for the backup monday, with what the launcher told of one.
func backupScope(state *protocol.BackupState) *scope {
	s := lateScope(nil)
	s.vmi.Name = "web"
	s.vmi.Status.ChangedBlockTracking = &v1.ChangedBlockTrackingStatus{State: v1.ChangedBlockTrackingEnabled}
	s.before = &runtimeStatus{}
	s.backup = &backup.Request{Name: "monday", UID: "u", Claim: "backups", Tracker: "t", Base: "sunday", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.view.State.Backup = state
	return s
}

// told is what the status says of a backup, in one line.
func told(s *scope) string {
	said := backupOf(s)
	if said == nil {
		return ""
	}
	status := said.BackupStatus
	words := []string{status.BackupName}
	if status.StartTimestamp != nil {
		words = append(words, "began")
	}
	for _, volume := range status.Volumes {
		words = append(words, volume.VolumeName+"="+volume.DiskTarget)
	}
	for _, one := range []*string{status.CheckpointName, status.BackupMsg} {
		if one != nil {
			words = append(words, *one)
		}
	}
	if status.EndTimestamp != nil {
		words = append(words, "ended")
	}
	return strings.Join(append(words, fmt.Sprint(status.Completed, status.Failed), status.QuiesceStatus), " ")
}

func TestWhatIsSaidOfABackup(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := began.Add(time.Minute)
	disks := []protocol.BackupDisk{{Volume: "root", Target: "vda"}}
	copying := protocol.BackupState{ID: "u", Began: began, Copying: true, Incremental: true, Disks: disks, Quiesce: protocol.QuiesceSucceeded}
	done, warned, failed := copying, copying, copying
	done.Ended, warned.Ended, failed.Ended = &ended, &ended, &ended
	warned.Warning, warned.Quiesce, failed.Error = "no agent", protocol.QuiesceFailed, "No space left on device"
	aborted, refused, untracked := backupScope(nil), backupScope(nil), backupScope(&copying)
	aborted.backup.Abort, refused.backupRefused, untracked.vmi.Status.ChangedBlockTracking = true, "too old", nil
	over := backupScope(&done)
	over.before.ChangedBlockTracking = &backupStatus{BackupStatus: &v1.VirtualMachineInstanceBackupStatus{BackupName: "as it was", Completed: true}}
	over.before.VolumeStatus = []v1.VolumeStatus{{Name: "backup-u", Phase: v1.HotplugVolumeMounted, Reason: backup.ReasonFull}}
	unasked := backupScope(&copying)
	unasked.backup = nil
	for name, c := range map[string]struct {
		scope          *scope
		want, wantFrom string
	}{
		"that waits for its claim":   {backupScope(nil), "monday false false ", "Pending FailedPvcNotFound"},
		"whose claim comes":          {backupScope(nil).attached("backup-u", "backups", false), "monday false false ", "Bound SuccessfulCreate"},
		"to a block device":          {backupScope(nil).claimed("backup-u", corev1.ClaimBound, corev1.PersistentVolumeBlock), "must be a filesystem PVC", "Bound BackupFailed"},
		"of an earlier one":          {backupScope(&protocol.BackupState{ID: "other", Ended: &ended}), "monday false false ", "Pending FailedPvcNotFound"},
		"that begins":                {backupScope(&protocol.BackupState{ID: "u", Began: began}), "monday began false false ", "Pending FailedPvcNotFound"},
		"that goes on":               {backupScope(&copying), "monday began root=vda monday-2026-01-02_03-04-05 false false Succeeded", "MountedToPod IncrementalBackup"},
		"that is whole":              {backupScope(&done), "monday began root=vda monday-2026-01-02_03-04-05 ended true false Succeeded", "MountedToPod IncrementalBackup"},
		"with a warning":             {backupScope(&warned), "no agent ended true false Failed", "MountedToPod IncrementalBackup"},
		"that failed":                {backupScope(&failed), "No space left on device ended true true Succeeded", "MountedToPod IncrementalBackup"},
		"that was aborted early":     {aborted, "aborted before it had begun ended true true", "Bound BackupFailed"},
		"by a launcher of former":    {refused, "too old ended true true", "Bound BackupFailed"},
		"that is over stays":         {over, "as it was true false", "MountedToPod FullBackup"},
		"where there is to be none":  {untracked, "", "MountedToPod IncrementalBackup"},
		"that is asked for no more":  {unasked, "", ""},
		"of which something is left": {unasked.attached("backup-u", "backups", false), "", "MountedToPod Detaching"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "that is asked for no more" {
				c.scope = backupScope(nil)
				c.scope.backup = nil
			}
			if got := told(c.scope); !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, c.want)
			}
			got := ""
			for _, status := range backupTargets(c.scope) {
				got = fmt.Sprintf("%s %s", status.Phase, status.Reason)
			}
			if got != c.wantFrom {
				t.Errorf("of the volume: got %q, want %q", got, c.wantFrom)
			}
		})
	}
}

func TestTheClaimOfABackupIsNeededWhileItIsWritten(t *testing.T) {
	copying := &protocol.BackupState{ID: "u", Copying: true}
	ended := time.Now()
	left, done := backupScope(copying), backupScope(&protocol.BackupState{ID: "u", Ended: &ended})
	left.backup, done.backup = nil, nil
	for name, c := range map[string]struct {
		scope *scope
		want  bool
	}{
		"it is asked for":                 {backupScope(nil), true},
		"it is asked for no more":         {left, true},
		"it is over, and asked for none ": {done, false},
	} {
		c.scope.attached("backup-u", "backups", false)
		if got := needed(c.scope, c.scope.attachments[0]); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestTheGuestsOwnDisksAreBackedUp(t *testing.T) {
	s := backupScope(nil)
	with := lateScope([]protocol.Disk{{Volume: "root", Target: "vda"}, {Volume: "going", Target: "vdb", Leaving: true}}, "root", "going", "coming")
	s.vmi.Spec, s.view.State.Disks = with.vmi.Spec, with.view.State.Disks
	what := backupMessage(s.vmi, s.backup, backupDisks(s))
	if len(what.Disks) != 1 || what.Disks[0] != (protocol.BackupDisk{Volume: "root", File: "monday-root.qcow2", Target: "vda"}) {
		t.Errorf("the disks are %+v", what.Disks)
	}
	if what.ID != "u" || what.Checkpoint != "monday-2026-01-02_03-04-05" || what.Base != "sunday" || strings.Join(what.Folder, "/") != "web/monday-2026-01-02_03-04-05" {
		t.Errorf("got %+v", what)
	}
	s.backup.Tracker = ""
	if what := backupMessage(s.vmi, s.backup, nil); what.Checkpoint != "" || what.Base != "" {
		t.Errorf("without a tracker: %+v", what)
	}
}
