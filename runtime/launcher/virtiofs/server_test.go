package virtiofs_test

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/launcher/process"
	"github.com/slipway-vm/slipway/runtime/launcher/virtiofs"
)

// patience is how long a test waits on a busy machine.
const patience = time.Minute

// serve starts a script in the place of virtiofsd, which has its arguments and file 3, the socket.
func serve(t *testing.T, script string, share virtiofs.Share) (*virtiofs.Server, error) {
	t.Helper()
	table, err := process.NewTable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "virtiofsd")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	server, err := virtiofs.Start(table, program, share, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Cleanup(func() { _ = server.Stop() })
	}
	return server, err
}

// work is a share that the guest may write to.
func work(t *testing.T) virtiofs.Share {
	t.Helper()
	dir, err := os.MkdirTemp("", "fs-") // short: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return virtiofs.Share{Name: "work", Dir: dir, Socket: filepath.Join(dir, "s")}
}

func TestAServerCanBeReachedAtOnceAndIsStopped(t *testing.T) {
	share := work(t)
	server, err := serve(t, "exec /bin/sleep 600", share)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", share.Socket)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if how := server.How(); how != "" || server.Failure() != nil {
		t.Errorf("it runs, and says %q", how)
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(share.Socket); err == nil {
		t.Error("the socket is still there")
	}
}

func TestAServersLastWordsSayHowItEnded(t *testing.T) {
	for name, c := range map[string]struct {
		script, how string
		failed      bool
	}{
		"left by QEMU": {"exit 0", "virtiofsd of filesystem work ended: exit status 0", false},
		"an error":     {"echo first >&2; echo the last words >&2; exit 3", "virtiofsd of filesystem work ended: exit status 3; it said: the last words", true},
		"killed":       {"kill -KILL $$", "virtiofsd of filesystem work ended: signal: killed", true},
	} {
		t.Run(name, func(t *testing.T) {
			server, err := serve(t, c.script, work(t))
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-server.Ended():
			case <-time.After(patience):
				t.Fatal("it does not end")
			}
			if how := server.How(); how != c.how || (server.Failure() != nil) != c.failed {
				t.Errorf("said %q, %v", how, server.Failure())
			}
			if _, err := net.Dial("unix", server.Socket); err == nil {
				t.Error("somebody listens")
			}
		})
	}
}

func TestOnlyWhatIsReadCannotBeWritten(t *testing.T) {
	share := work(t)
	for _, share.ReadOnly = range []bool{false, true} {
		server, err := serve(t, `echo "$@" >&2; exit 1`, share)
		if err != nil {
			t.Fatal(err)
		}
		<-server.Ended()
		how := server.How()
		for _, want := range []string{"--fd=3", "--shared-dir=" + share.Dir + " ", "--sandbox=none", "--seccomp=kill", "--inode-file-handles=never"} {
			if !strings.Contains(how, want) {
				t.Errorf("%q lacks %q", how, want)
			}
		}
		if strings.Contains(how, "--readonly") != share.ReadOnly || strings.Contains(how, "--xattr") {
			t.Errorf("read-only is %t: %q", share.ReadOnly, how)
		}
	}
}

func TestAFolderThatIsNoneIsRefused(t *testing.T) {
	share := work(t)
	share.Dir = filepath.Join(share.Dir, "gone")
	if _, err := serve(t, "exit 0", share); err == nil || !strings.Contains(err.Error(), "the folder of filesystem work") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(share.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := serve(t, "exit 0", share); err == nil || !strings.Contains(err.Error(), "is no folder") {
		t.Errorf("got %v", err)
	}
}
