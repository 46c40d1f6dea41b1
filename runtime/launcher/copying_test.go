package launcher

import (
	"reflect"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

func wantedBackup(base string) protocol.Backup {
	return protocol.Backup{
		ID: "b", Tracker: "t", Checkpoint: "tuesday", Base: base,
		Disks: []protocol.BackupDisk{{Volume: "root", File: "root.qcow2"}, {Volume: "data", File: "data.qcow2"}},
	}
}

func twoDevices() map[string]hypervisor.BlockDevice {
	return map[string]hypervisor.BlockDevice{
		"ua-root": {Node: "n0", Size: 1 << 30, Used: 1 << 20, Bitmaps: map[string]int64{"slipway-backup-t-monday": 4096, "slipway-backup-other-monday": 1}},
		"ua-data": {Node: "n1", Size: 1 << 30, Used: 1 << 21, Bitmaps: map[string]int64{"slipway-backup-t-monday": 8192}},
	}
}

func TestWhatHasChangedIsCopied(t *testing.T) {
	disks, incremental, err := planCopies(wantedBackup("monday"), twoDevices(), 5)
	if err != nil || !incremental {
		t.Fatalf("incremental %v, %v", incremental, err)
	}
	want := []copied{
		{
			Copy:   hypervisor.Copy{Job: "slipway-backup-5", Node: "n0", Target: "slipway-backup-5-target", New: "slipway-backup-t-tuesday", Since: "slipway-backup-t-monday"},
			volume: "root", n: 5, size: 1 << 30, needs: 4096, former: []string{"slipway-backup-t-monday"},
		},
		{
			Copy:   hypervisor.Copy{Job: "slipway-backup-6", Node: "n1", Target: "slipway-backup-6-target", New: "slipway-backup-t-tuesday", Since: "slipway-backup-t-monday"},
			volume: "data", n: 6, size: 1 << 30, needs: 8192, former: []string{"slipway-backup-t-monday"},
		},
	}
	if !reflect.DeepEqual(disks, want) {
		t.Errorf("got %+v", disks)
	}
}

func TestABackupIsFullWhereADiskDoesNotKnowWhatHasChanged(t *testing.T) {
	devices := twoDevices()
	devices["ua-data"] = hypervisor.BlockDevice{Node: "n1", Size: 1 << 30, Used: 1 << 21}
	disks, incremental, err := planCopies(wantedBackup("monday"), devices, 0)
	if err != nil || incremental || disks[0].Since != "" || disks[0].needs != 1<<20 || disks[0].New == "" {
		t.Errorf("incremental %v, %+v, %v", incremental, disks, err)
	}
	wanted := wantedBackup("")
	wanted.Tracker, wanted.Checkpoint = "", ""
	disks, incremental, err = planCopies(wanted, twoDevices(), 0)
	if err != nil || incremental || disks[0].New != "" || disks[0].former != nil {
		t.Errorf("without a tracker: incremental %v, %+v, %v", incremental, disks, err)
	}
	if _, _, err := planCopies(wantedBackup(""), nil, 0); err == nil {
		t.Error("a disk that there is not is backed up")
	}
}

func TestABackupForWhichThereIsNoRoomDoesNotBegin(t *testing.T) {
	disks := []copied{{size: 1 << 30, needs: 1 << 20}, {size: 1 << 30, needs: 1 << 20}}
	if err := roomFor(disks, 2<<20+2<<17); err != nil {
		t.Error(err)
	}
	if err := roomFor(disks, 2<<20); err == nil || !strings.Contains(err.Error(), "room for 2Mi") {
		t.Errorf("got %v", err)
	}
}

func TestWhyABackupFailed(t *testing.T) {
	disks := []copied{{volume: "a", Copy: hypervisor.Copy{Job: "0"}}, {volume: "b", Copy: hypervisor.Copy{Job: "1"}}}
	running, well := hypervisor.Job{Status: "running"}, hypervisor.Job{Status: "concluded"}
	full, ended := hypervisor.Job{Status: "concluded", Error: "No space left on device"}, hypervisor.Job{Status: "concluded", Error: cancelled}
	for name, c := range map[string]struct {
		first, second hypervisor.Job
		known, want   string
	}{
		"both go on":             {first: running, second: well},
		"one is full":            {first: running, second: full, want: "volume b: No space left on device"},
		"the other was ended":    {first: full, second: ended, want: "volume a: No space left on device"},
		"the other came first":   {first: ended, second: full, want: "volume b: No space left on device"},
		"it is known why":        {first: ended, second: ended, known: backupAborted, want: backupAborted},
		"somebody else ended it": {first: ended, second: well, want: "volume a: Operation canceled"},
	} {
		if got := failureOf(disks, map[string]hypervisor.Job{"0": c.first, "1": c.second}, c.known); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := failureOf(disks, map[string]hypervisor.Job{"0": running}, ""); !strings.Contains(got, "volume b") {
		t.Errorf("without a job: %q", got)
	}
}
