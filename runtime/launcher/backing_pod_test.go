//go:build integration

package launcher_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// TestTheGuestsDisksAreBackedUp copies a disk that the guest goes on to write to: all of it, then what has
// changed since. Both together are the disk as it was; what fails, or is aborted, leaves nothing.
func TestTheGuestsDisksAreBackedUp(t *testing.T) {
	p := booted(t)
	disk, claim := claimDir(t), claimDir(t)
	vmi := guest()
	addDisk(vmi, "data", v1.DiskBusVirtio)
	p.plugged(vmi, "data", disk)
	p.inGuest("ls /sys/block", "vdd")
	p.exec("dd if=/dev/urandom of=/dev/vdd bs=1M count=2 2>/dev/null; sync")

	full := p.backUp(claim, "full", "", "one")
	if full.Error != "" || full.Incremental || full.Quiesce == "" || full.Disks[0].Target != "vdd" {
		t.Fatalf("%+v", full)
	}
	first := p.exec("md5sum /dev/vdd").Stdout
	p.same(first, claim, "full-one")
	p.exec("dd if=/dev/urandom of=/dev/vdd bs=64k seek=5 count=3 conv=notrunc 2>/dev/null; dd if=/dev/zero of=/dev/vdd bs=64k seek=20 count=1 conv=notrunc 2>/dev/null; sync")
	second := p.exec("md5sum /dev/vdd").Stdout
	if first == second {
		t.Fatal("nothing has changed")
	}
	small := tooSmall(t)
	// Four blocks of 64Ki have changed: there is room for them and a page of tables, then not even for that.
	for i, c := range []struct {
		fill int
		want string
	}{{16<<20 - 268<<10, "No space left"}, {44 << 10, "has room for 224Ki"}} {
		if err := os.WriteFile(filepath.Join(small, fmt.Sprint("fill", i)), make([]byte, c.fill), 0o600); err != nil {
			t.Fatal(err)
		}
		if failed := p.backUp(small, "nowhere", "full-one", fmt.Sprint(i)); !strings.Contains(failed.Error, c.want) {
			t.Errorf("a claim that is too small: %+v, want %s", failed, c.want)
		}
		if entries, err := os.ReadDir(small); err != nil || len(entries) != i+1 {
			t.Errorf("the claim that is too small holds %v, %v", entries, err)
		}
	}

	part := p.backUp(claim, "part", "full-one", "two")
	if part.Error != "" || !part.Incremental {
		t.Fatalf("%+v", part)
	}
	file := filepath.Join(claim, "tiny", "part-two", "part-data.qcow2")
	if size := allocated(t, file); size > 1<<20 {
		t.Errorf("the part that has changed takes %d bytes", size)
	}
	p.image(claim, "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", "../full-one/full-data.qcow2", "tiny/part-two/part-data.qcow2")
	p.same(second, claim, "part-two")
	p.same(first, claim, "full-one")

	again := p.backUp(claim, "again", "full-one", "three") // of which nothing is known any more
	if again.Error != "" || again.Incremental {
		t.Errorf("after a checkpoint that is gone: %+v", again)
	}
	p.beginBackup(claim, protocol.Backup{ID: "twice", Folder: []string{"tiny", "part-two"}, Disks: []protocol.BackupDisk{{Volume: "data", File: "part-data.qcow2"}}})
	if twice := p.backupEnded("twice"); !strings.Contains(twice.Error, "already") {
		t.Errorf("to a folder that is there: %+v", twice)
	}
	p.abort(claim)
	if err := syscall.Kill(p.pid("libvirtd"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.retry("a backup once libvirtd is back", func() error {
		if last := p.backUp(claim, "last", "again-three", fmt.Sprint("n", len(p.log.String()))); last.Error != "" {
			return fmt.Errorf("%+v", last)
		}
		return nil
	})
	p.goesOn("md5sum /dev/vdd", strings.Fields(second)[0])
}

// backUp has the disk data backed up to the folder claim, and waits for the end.
func (p *pod) backUp(claim, name, base, stamp string) protocol.BackupState {
	p.t.Helper()
	id := name + "-" + stamp
	p.beginBackup(claim, protocol.Backup{
		ID: id, Folder: []string{"tiny", id}, Tracker: "t", Checkpoint: id, Base: base,
		Disks: []protocol.BackupDisk{{Volume: "data", File: name + "-data.qcow2"}},
	})
	return p.backupEnded(id)
}

func (p *pod) beginBackup(claim string, what protocol.Backup) {
	p.t.Helper()
	folder, err := os.OpenFile(claim, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer folder.Close()
	var state protocol.State
	if err := p.conn.Call(p.t.Context(), protocol.TypeBackup, what, &state, folder); err != nil {
		p.t.Fatal(err)
	}
	if state.Backup == nil || state.Backup.ID != what.ID {
		p.t.Fatalf("once it has begun: %+v", state.Backup)
	}
}

func (p *pod) backupEnded(id string) protocol.BackupState {
	p.t.Helper()
	var found protocol.BackupState
	p.until("the end of the backup "+id, func(state protocol.State) bool {
		if state.Backup == nil || state.Backup.ID != id || state.Backup.Ended == nil {
			return false
		}
		found = *state.Backup
		return true
	})
	return found
}

// abort ends a backup at once, of which nothing stays.
func (p *pod) abort(claim string) {
	p.t.Helper()
	p.beginBackup(claim, protocol.Backup{ID: "aborted", Folder: []string{"tiny", "aborted"}, Disks: []protocol.BackupDisk{{Volume: "data", File: "aborted-data.qcow2"}}})
	if err := p.conn.Call(p.t.Context(), protocol.TypeAbortBackup, protocol.AbortBackup{ID: "aborted"}, nil); err != nil {
		p.t.Fatal(err)
	}
	ended := p.backupEnded("aborted")
	_, err := os.Stat(filepath.Join(claim, "tiny", "aborted"))
	if whole := ended.Error == ""; whole != (err == nil) { // it may have been whole before
		p.t.Errorf("%+v, and its folder: %v", ended, err)
	}
	if left, _ := filepath.Glob(filepath.Join(claim, "tiny", "*.partial")); len(left) > 0 {
		p.t.Errorf("there is %v", left)
	}
}

// image runs qemu-img in the folder claim.
func (p *pod) image(claim string, args ...string) string {
	p.t.Helper()
	need.Program(p.t, "qemu-img", "qemu-utils")
	cmd := exec.Command("qemu-img", args...)
	cmd.Dir = claim
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("qemu-img %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// same compares the disk in a backup with what the guest said of its own.
func (p *pod) same(want, claim, folder string) {
	p.t.Helper()
	file := filepath.Join("tiny", folder, strings.Split(folder, "-")[0]+"-data.qcow2")
	p.image(claim, "check", file)
	p.image(claim, "convert", "-O", "raw", file, "whole.img")
	out, err := exec.Command("md5sum", filepath.Join(claim, "whole.img")).Output()
	if err != nil || strings.Fields(string(out))[0] != strings.Fields(want)[0] {
		p.t.Errorf("%s has %s, %v; the guest's disk has %s", folder, out, err, want)
	}
}

func allocated(t *testing.T, path string) int64 {
	t.Helper()
	var info syscall.Stat_t
	if err := syscall.Stat(path, &info); err != nil {
		t.Fatal(err)
	}
	return info.Blocks * 512
}
