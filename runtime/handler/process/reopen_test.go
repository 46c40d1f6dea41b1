package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhatIsNoFileIsNotOpenedToFindThatOut(t *testing.T) {
	dir := t.TempDir()
	pipe, file, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.WriteFile(file, []byte("text"), 0o600), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, dir, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.ReadFile(pipe); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe: %v", err)
	}
	events := make([]byte, 4<<10)
	if n, err := unix.Read(watch, events); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the pipe was opened: %q, %v", events[:max(n, 0)], err)
	}
	for _, path := range []string{file, link} {
		if data, err := p.ReadFile(path); err != nil || string(data) != "text" {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
	if n, err := unix.Read(watch, events); err != nil || !strings.Contains(string(events[:n]), "file") {
		t.Errorf("files that were opened were not seen: %q, %v", events[:max(n, 0)], err)
	}
}

func TestALimitIsTakenBackFromWhoGotTheNumberMeanwhile(t *testing.T) {
	first, second := exec.Command("sleep", "3600"), exec.Command("sleep", "3600")
	for _, command := range []*exec.Cmd{first, second} {
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
		})
	}
	ended, err := hold(first.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer ended.Close()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	runs, err := hold(second.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()

	before := files(t, second.Process.Pid)
	wanted := unix.Rlimit{Cur: before.Cur / 2, Max: before.Max} // of the soft limit everybody is master
	if again, err := limit(ended, second.Process.Pid, unix.RLIMIT_NOFILE, wanted); err != nil || !again {
		t.Errorf("the number of another process: %v, %v", again, err)
	}
	if got := files(t, second.Process.Pid); got != before {
		t.Errorf("another process has the limit %+v, want %+v as before", got, before)
	}
	for _, want := range []bool{true, false} {
		if changed, err := limit(runs, second.Process.Pid, unix.RLIMIT_NOFILE, wanted); err != nil || changed != want {
			t.Errorf("the process itself: %v, %v, want %v", changed, err, want)
		}
	}
	if got := files(t, second.Process.Pid); got != wanted {
		t.Errorf("the process has the limit %+v, want %+v", got, wanted)
	}
}

func files(t *testing.T, pid int) (limit unix.Rlimit) {
	t.Helper()
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	return limit
}
