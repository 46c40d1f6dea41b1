package process

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxLog is the size in bytes at which a log is put aside when its program starts again.
const maxLog = 50 << 20

// Records is a folder with one file per running program.
type Records string

func (r Records) file(name string) string { return filepath.Join(string(r), name+".json") }

// Get returns the recorded process of a name, and whether it is alive.
func (r Records) Get(name string) (Identity, bool) {
	var id Identity
	b, err := os.ReadFile(r.file(name))
	if err != nil || json.Unmarshal(b, &id) != nil {
		return Identity{}, false
	}
	return id, id.Alive()
}

// Put records a process under a name.
func (r Records) Put(name string, id Identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("recording %s: %w", name, err)
	}
	if err := os.MkdirAll(string(r), 0o755); err != nil {
		return fmt.Errorf("recording %s: %w", name, err)
	}
	tmp := r.file(name) + ".new"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return fmt.Errorf("recording %s: %w", name, err)
	}
	if err := os.Rename(tmp, r.file(name)); err != nil {
		return fmt.Errorf("recording %s: %w", name, err)
	}
	return nil
}

// Forget removes the record of a name.
func (r Records) Forget(name string) {
	_ = os.Remove(r.file(name))
}

// Start runs a command in a session of its own, its output appended to the log
// file, and returns it with its identity. It outlives its starter.
func Start(cmd *exec.Cmd, log string) (Identity, error) {
	if info, err := os.Stat(log); err == nil && info.Size() > maxLog {
		_ = os.Rename(log, log+".1")
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Identity{}, fmt.Errorf("opening the log of %s: %w", cmd.Path, err)
	}
	defer out.Close() //nolint:errcheck // the child holds its own copy
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Identity{}, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill() // when it only cannot be identified
		_ = cmd.Wait()
		return Identity{}, fmt.Errorf("%s ended at once, see %s: %w", cmd.Path, log, err)
	}
	return id, nil
}
