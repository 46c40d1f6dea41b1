package hypervisor

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestTheGuestsDisksAreRead(t *testing.T) {
	answer := `[
		{"device": "", "qdev": "/machine/peripheral/ua-root/virtio-backend", "inserted": {"node-name": "libvirt-2-format", "file": "/run/disk.img",
			"dirty-bitmaps": [{"name": "slipway-backup-a", "count": 65536}], "image": {"virtual-size": 1048576, "actual-size": 4096}}},
		{"device": "", "qdev": "ua-data", "inserted": {"node-name": "libvirt-1-storage", "file": "/dev/data", "image": {"virtual-size": 2097152, "actual-size": 0}}},
		{"device": "", "qdev": "ua-disc", "removable": true},
		{"device": "pflash0", "inserted": {"node-name": "libvirt-pflash0-format", "file": "/x", "image": {"virtual-size": 1}}}
	]`
	want := map[string]BlockDevice{
		"ua-root": {Node: "libvirt-2-format", Size: 1 << 20, Used: 4096, Bitmaps: map[string]int64{"slipway-backup-a": 65536}},
		"ua-data": {Node: "libvirt-1-storage", Size: 2 << 20, Bitmaps: map[string]int64{}},
	}
	if got, err := blockDevices(json.RawMessage(answer)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestDisksAreCopiedInOneTransaction(t *testing.T) {
	got, err := json.Marshal(actions([]Copy{
		{Job: "j0", Node: "n0", Target: "t0", New: "new", Since: "old"}, {Job: "j1", Node: "n1", Target: "t1"},
	}))
	want := `[{"data":{"name":"new","node":"n0"},"type":"block-dirty-bitmap-add"},` +
		`{"data":{"auto-dismiss":false,"bitmap":"old","bitmap-mode":"never","device":"n0","job-id":"j0","sync":"bitmap","target":"t0"},"type":"blockdev-backup"},` +
		`{"data":{"auto-dismiss":false,"device":"n1","job-id":"j1","sync":"full","target":"t1"},"type":"blockdev-backup"}]`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestTheEndOfABackupsJobIsTold(t *testing.T) {
	for details, want := range map[string]bool{
		`{"status": "concluded", "id": "slipway-backup-1-0"}`: true,
		`{"status": "running", "id": "slipway-backup-1-0"}`:   false,
		`{"status": "concluded", "id": "libvirt-job"}`:        false,
		`nonsense`: false,
	} {
		if got := ofBackup(details); got != want {
			t.Errorf("%s: got %v", details, got)
		}
	}
}
