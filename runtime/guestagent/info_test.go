package guestagent_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// answers are those of qemu-ga in a Debian guest.
var answers = map[string]string{
	"guest-info":          `{"return":{"version":"10.0.2","supported_commands":[{"enabled":true,"name":"guest-ping","success-response":true},{"enabled":false,"name":"guest-exec","success-response":true}]}}`,
	"guest-get-osinfo":    `{"return":{"id":"debian","name":"Debian GNU/Linux"}}`,
	"guest-get-host-name": `{"return":{"host-name":"tiny"}}`,
	"guest-get-timezone":  `{"return":{"offset":-3600,"zone":"-01"}}`,
	"guest-get-users":     `{"return":[{"login-time":1795199397.25,"user":"root"},{"login-time":1795199398,"user":"eve","domain":"EXAMPLE"}]}`,
	"guest-get-fsinfo": `{"return":[{"name":"vda1","total-bytes":100,"mountpoint":"/","type":"ext4","used-bytes":40,
		"disk":[{"serial":"abc","bus-type":"virtio","bus":0,"unit":0,"pci-controller":{"bus":4},"dev":"/dev/vda1","target":0}]},
		{"name":"vdb","mountpoint":"/mnt","type":"vfat","disk":[]}]}`,
}

func TestInfoIsTheAPIs(t *testing.T) {
	info, err := guestagent.Info(t.Context(), &agent{answers: answers})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"guestAgentVersion":"10.0.2"`, `"supportedCommands":[{"name":"guest-ping","enabled":true},{"name":"guest-exec"}]`, `"hostname":"tiny"`,
		`"os":{"name":"Debian GNU/Linux","id":"debian"}`, `"timezone":"-01, -3600"`,
		`"userList":[{"userName":"root","loginTime":1795199397.25},{"userName":"eve","domain":"EXAMPLE","loginTime":1795199398}]`,
		`"fsInfo":{"disks":[{"diskName":"vda1","mountPoint":"/","fileSystemType":"ext4","usedBytes":40,"totalBytes":100,"disk":[{"serial":"abc","busType":"virtio"}]},` +
			`{"diskName":"vdb","mountPoint":"/mnt","fileSystemType":"vfat","usedBytes":0,"totalBytes":0}]}`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
}

func TestInfoKeepsWhatASmallAgentKnows(t *testing.T) {
	info, err := guestagent.Info(t.Context(), &agent{answers: map[string]string{"guest-info": `{"return":{"version":"1"}}`}})
	if info.GAVersion != "1" || info.Timezone != "" || err == nil || !strings.Contains(err.Error(), "guest-get-users has not been found") {
		t.Errorf("info %+v, error %v", info, err)
	}
}

func TestListsWithNothingInThemAreLists(t *testing.T) {
	a := &agent{answers: map[string]string{"guest-get-users": `{"return":[]}`, "guest-get-fsinfo": `{"return":[]}`}}
	users, err := guestagent.Users(t.Context(), a)
	if err != nil || users.Items == nil {
		t.Errorf("users %+v, %v", users, err)
	}
	filesystems, err := guestagent.Filesystems(t.Context(), a)
	if err != nil || filesystems.Items == nil {
		t.Errorf("file systems %+v, %v", filesystems, err)
	}
}

func TestTheLoadIsAskedForOfWhoKnowsIt(t *testing.T) {
	knows := &agent{answers: map[string]string{
		"guest-info":     `{"return":{"version":"10.0.2","supported_commands":[{"enabled":true,"name":"guest-ping"},{"enabled":true,"name":"guest-get-load"}]}}`,
		"guest-get-load": `{"return":{"load1m":1.25,"load5m":0.5,"load15m":0}}`,
	}}
	if report, _ := guestagent.Ask(t.Context(), knows); !report.Load {
		t.Errorf("report %+v", report)
	}
	load, err := guestagent.Load(t.Context(), knows)
	if err != nil || load.OneMinute == nil || *load.OneMinute != 1.25 || *load.FiveMinutes != 0.5 || *load.FifteenMinutes != 0 {
		t.Errorf("load %+v, %v", load, err)
	}
	old := &agent{answers: answers}
	if report, _ := guestagent.Ask(t.Context(), old); report.Load {
		t.Errorf("report %+v", report)
	}
	if load, err := guestagent.Load(t.Context(), old); err == nil || load != (protocol.LoadStats{}) {
		t.Errorf("load %+v, %v", load, err)
	}
}

func TestOnlyAFrozenGuestIsThawed(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]string
		frozen  bool
	}{ // each knows only the command that fits
		"frozen": {map[string]string{"guest-fsfreeze-status": `{"return":"frozen"}`, "guest-fsfreeze-thaw": `{"return":1}`}, true},
		"thawed": {map[string]string{"guest-fsfreeze-status": `{"return":"thawed"}`, "guest-fsfreeze-freeze": `{"return":1}`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := &agent{answers: c.answers}
			if frozen, err := guestagent.Frozen(t.Context(), a); frozen != c.frozen || err != nil {
				t.Errorf("frozen: %v, %v", frozen, err)
			}
			if err := guestagent.Thaw(t.Context(), a); err != nil {
				t.Errorf("thawing: %v", err)
			}
			if err := guestagent.Freeze(t.Context(), a); (err == nil) == c.frozen {
				t.Errorf("freezing: %v", err)
			}
		})
	}
}

func TestSetTimeTellsARefusal(t *testing.T) {
	if err := guestagent.SetTime(t.Context(), &agent{answers: map[string]string{"guest-set-time": `{"return":{}}`}}, time.Now()); err != nil {
		t.Error(err)
	}
	if err := guestagent.SetTime(t.Context(), &agent{}, time.Now()); err == nil || !strings.Contains(err.Error(), "guest-set-time has not been found") {
		t.Errorf("error %v", err)
	}
}
