package launcher

import (
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

func TestEndingsTellHowAProcessEnded(t *testing.T) {
	cases := map[string]struct{ script, want string }{
		"by the kernel for its memory": {"kill -9 $$", "memory limit"},
		"by another signal":            {"kill -11 $$", "signal 11"},
		"by itself":                    {"exit 4", "code 4"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", c.script)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			endings := newEndings()
			go func() {
				var status unix.WaitStatus
				if _, err := unix.Wait4(cmd.Process.Pid, &status, 0, nil); err == nil {
					endings.note(cmd.Process.Pid, status)
				}
			}()
			if got := endings.of(t.Context(), cmd.Process.Pid); !strings.Contains(got, c.want) {
				t.Errorf("%q, want something with %q", got, c.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		if got := newEndings().of(t.Context(), 1); got != "" {
			t.Errorf("an unknown process: %q", got)
		}
	})
}
