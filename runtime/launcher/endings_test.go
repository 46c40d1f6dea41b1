package launcher

import (
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/launcher/process"
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
					endings.note(process.Ending{PID: cmd.Process.Pid, Program: "sh", Status: status})
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

func TestEndingsTellOfAQEMUThatDidNotGetFar(t *testing.T) {
	const exited, aborted = unix.WaitStatus(1 << 8), unix.WaitStatus(unix.SIGABRT)
	synctest.Test(t, func(t *testing.T) {
		endings, began := newEndings(), time.Now()
		if got := endings.ofStart(began); got != "" {
			t.Errorf("of none: %q", got)
		}
		time.Sleep(time.Second)
		for _, other := range []process.Ending{{Program: "swtpm", Status: aborted}, {Program: "qemu-system-x86", Status: exited}} {
			if endings.note(other); endings.ofStart(began) != "" {
				t.Errorf("of %+v: %q", other, endings.ofStart(began))
			}
		}
		endings.note(process.Ending{PID: 7, Program: "qemu-system-x86", Status: aborted})
		if got, want := endings.ofStart(began), "QEMU was ended by signal 6 (aborted)"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		time.Sleep(time.Second)
		if got := endings.ofStart(time.Now()); got != "" {
			t.Errorf("of one before: %q", got)
		}
	})
}
