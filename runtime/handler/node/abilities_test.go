package node

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestAbilities(t *testing.T) {
	const static = `{"policyName":"static","defaultCpuSet":"0-1","entries":{},"checksum":1353318690}`
	for name, c := range map[string]struct {
		state, realtime         string
		static, timely, wantErr bool
	}{
		"the policy static":           {state: static, realtime: "950000\n", static: true},
		"the policy none":             {state: `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`, realtime: "950000\n"},
		"a kubelet that left nothing": {realtime: "950000\n"},
		"a kernel for real time":      {state: static, realtime: "-1\n", static: true, timely: true},
		"a kernel that does not say":  {state: static, static: true},
		"a state that cannot be read": {state: "policyName: static", wantErr: true},
		"a state that is cut off":     {state: static[:30], wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			root, setting := t.TempDir(), filepath.Join(t.TempDir(), "setting")
			for path, content := range map[string]string{filepath.Join(root, cpuManagerState): c.state, setting: c.realtime} {
				if content == "" {
					continue
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want := map[string]any{v1.CPUManager: "false", v1.DeprecatedCPUManager: "false"}
			if c.static {
				want = map[string]any{v1.CPUManager: "true", v1.DeprecatedCPUManager: "true"}
			}
			if c.timely {
				want[v1.RealtimeLabel] = "true"
			}
			got, err := abilities(root, setting)
			if (err != nil) != c.wantErr || !maps.Equal(got, want) {
				t.Errorf("%v, %v; want %v", got, err, want)
			}
		})
	}
}

func TestTheStateIsNotReadThroughLinks(t *testing.T) {
	root, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(elsewhere, []byte(`{"policyName":"static"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(root, cpuManagerState)); err != nil {
		t.Fatal(err)
	}
	if static, err := givesProcessors(root); static || err == nil {
		t.Errorf("a link out of the folder was followed: %t, %v", static, err)
	}
}
