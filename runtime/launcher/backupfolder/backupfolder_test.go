package backupfolder_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/launcher/backupfolder"
)

var path = []string{"web", "monday-2026-01-02_03-04-05"}

// claim is a folder, opened as virt-handler does: to look things up only.
func claim(t *testing.T) (string, *os.File) {
	t.Helper()
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	folder := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { _ = folder.Close() })
	return dir, folder
}

// tree are the paths of all that is below dir.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if path != dir {
			all = append(all, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func write(t *testing.T, folder *os.File) *backupfolder.Folder {
	t.Helper()
	f, err := backupfolder.Create(folder, path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := f.File("monday-root.qcow2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("disk"); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAFolderHasItsNameOnceItIsWhole(t *testing.T) {
	dir, folder := claim(t)
	f := write(t, folder)
	if got := tree(t, dir); got != "web web/monday-2026-01-02_03-04-05.partial web/monday-2026-01-02_03-04-05.partial/monday-root.qcow2" {
		t.Errorf("while it is written: %s", got)
	}
	if free, err := f.Free(); err != nil || free <= 0 {
		t.Errorf("there is room for %d bytes, %v", free, err)
	}
	if err := f.Keep(); err != nil {
		t.Fatal(err)
	}
	const whole = "web web/monday-2026-01-02_03-04-05 web/monday-2026-01-02_03-04-05/monday-root.qcow2"
	if got := tree(t, dir); got != whole {
		t.Errorf("once it is whole: %s", got)
	}
	if _, err := backupfolder.Create(folder, path); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second time: %v", err)
	}
	if got := tree(t, dir); got != whole {
		t.Errorf("after the second time: %s", got)
	}
}

func TestNothingStaysOfWhatIsDiscarded(t *testing.T) {
	dir, folder := claim(t)
	if err := write(t, folder).Discard(); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dir); got != "" {
		t.Errorf("there is %s", got)
	}
}

func TestWhatEarlierBackupsLeftGoes(t *testing.T) {
	dir, folder := claim(t)
	for _, file := range []string{
		"web/sunday-2026-01-01_03-04-05.partial/sunday-root.qcow2", "web/sunday-2026-01-01_03-04-05/sunday-root.qcow2",
		"web/mine.partial/mine.qcow2", "web/last-2026-01-01_03-04-05.partial/notes.txt", "db/sunday-2026-01-01_03-04-05.partial/sunday-root.qcow2",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := backupfolder.Create(folder, path)
	if err == nil || !strings.Contains(err.Error(), "last-2026") { // what is in it is not a backup's
		t.Errorf("a folder with others' files: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "web/last-2026-01-01_03-04-05.partial")); err != nil {
		t.Fatal(err)
	}
	if err := write(t, folder).Keep(); err != nil {
		t.Fatal(err)
	}
	got := tree(t, dir)
	if strings.Contains(got, "web/sunday-2026-01-01_03-04-05.partial") {
		t.Errorf("it left %s", got)
	}
	for _, want := range []string{"web/sunday-2026-01-01_03-04-05/sunday-root.qcow2", "web/mine.partial/mine.qcow2", "db/sunday-2026-01-01_03-04-05.partial/sunday-root.qcow2"} {
		if !strings.Contains(got, want) {
			t.Errorf("it removed %s", want)
		}
	}
}

func TestLinksOfOthersAreNotFollowed(t *testing.T) {
	dir, folder := claim(t)
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(dir, "web")); err != nil {
		t.Fatal(err)
	}
	if _, err := backupfolder.Create(folder, path); err == nil {
		t.Error("a link was followed")
	}
	if got := tree(t, elsewhere); got != "" {
		t.Errorf("there is %s", got)
	}
	for _, bad := range [][]string{{"web"}, {"..", "x"}, {"web", "../x"}, {"web", "a/b"}, {"web", ""}} {
		if _, err := backupfolder.Create(folder, bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
