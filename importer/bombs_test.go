package importer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/corpus"
	"github.com/slipway-vm/slipway/tests/fixture/diskimage"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// tarOf is an archive with one file.
func tarOf(t *testing.T, path string) string {
	t.Helper()
	return writeFile(t, filepath.Base(path)+".tar", diskimage.Tar(diskimage.Member{Name: filepath.Base(path), Data: readFile(t, path)}))
}

// endlessTar is the beginning of an archive, up to where a text of the largest size has its first byte.
func endlessTar(t *testing.T) []byte {
	t.Helper()
	return tarHead(t, "readme.txt", 1<<40)
}

// tarHead is the head of a member of an archive.
func tarHead(t *testing.T, name string, size int64) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := tar.NewWriter(&out).WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: size}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A bomb is a file of some MiB that unpacks to bombSize: a head, and then zeros.
const (
	bombSize  = 20 << 30
	bombPiece = 64 << 20 // of which the zeros are made
)

// packedZeros are bombPiece of zeros with the packing of a program; a packed file may have several such parts.
func packedZeros(t *testing.T, packer ...string) []byte {
	t.Helper()
	zeros := writeFile(t, "zeros", nil)
	if err := os.Truncate(zeros, bombPiece); err != nil {
		t.Fatal(err)
	}
	return readFile(t, pack(t, zeros, zeros+".packed", packer...))
}

// bomb is what stands before the zeros, and how the import of a disk, or of files, must end; well when reason is empty.
type bomb struct {
	head   []byte
	files  bool
	reason transfer.Reason
	words  string
}

func bombs(t *testing.T) map[string]bomb {
	t.Helper()
	raw := writeFile(t, "disk.raw", newDisk())
	vhdx := readFile(t, convert(t, raw, raw+".vhdx", "vhdx", "-o", "block_size=1M,log_size=1M"))
	qcow := readFile(t, qcow2(t, raw, raw+".qcow2"))
	disk := readFile(t, tarOf(t, raw))
	const toolarge = "larger than the volume"
	return map[string]bomb{
		"zeros":                     {make([]byte, 4096), false, transfer.TooSmall, toolarge},
		"a disk and zeros":          {newDisk(), false, transfer.TooSmall, toolarge},
		"qcow2 and zeros":           {qcow, false, transfer.InvalidImage, "twice its disk's size"},
		"vhdx and zeros":            {vhdx, false, transfer.InvalidImage, "twice its disk's size"},
		"tar and zeros":             {disk, false, "", ""},
		"disk in a tar":             {tarHead(t, "disk.raw", bombSize), false, transfer.TooSmall, "volume"},
		"qcow2 in a tar, and zeros": {append(tarHead(t, "disk.qcow2", bombSize), qcow...), false, transfer.InvalidImage, "over twice"},
		"text in a tar":             {tarHead(t, "readme.txt", bombSize), false, transfer.InvalidImage, "the tar archive has more than"},
		"files and zeros":           {disk, true, transfer.InvalidImage, "behind its end the archive"},
		"files, one of zeros":       {tarHead(t, "zeros", bombSize), true, transfer.TooSmall, "larger volume"},
	}
}

// Of what unpacks to much more than the volume takes no more is unpacked than the volume takes twice, and less is kept.
func TestBombs(t *testing.T) {
	packers := map[string][]string{"gz": {"gzip", "-1c"}}
	if corpus.Times(0, 1) > 0 {
		packers["xz"], packers["zst"], packers["bz2"] = []string{"xz", "-0c"}, []string{"zstd", "-qc"}, []string{"bzip2", "-c"}
	}
	all := bombs(t)
	for packing, packer := range packers {
		zeros := bytes.Repeat(packedZeros(t, packer...), bombSize/bombPiece)
		for name, b := range all {
			t.Run(name+" in "+packing, func(t *testing.T) {
				head := readFile(t, pack(t, writeFile(t, "head", b.head), filepath.Join(t.TempDir(), "head"), packer...))
				file := writeFile(t, "bomb", slices.Concat(head, zeros))
				got := explode(t, serve(t, filepath.Dir(file)).URL+"/bomb", b.files)
				if got.result.Reason != b.reason || !strings.Contains(got.result.Message, b.words) {
					t.Errorf("%q, want %q: %s", got.result.Reason, b.reason, got.result.Message)
				}
				if got.worked > 6*time.Second {
					t.Errorf("it computed for %v", got.worked)
				}
				if got.peak > 128<<20 {
					t.Errorf("it had %d MiB of memory", got.peak>>20)
				}
			})
		}
	}
}

// exploded is what an import came to, and took: time of the processor, and memory at its peak in bytes.
type exploded struct {
	result transfer.Result
	worked time.Duration
	peak   int64
}

// explode imports a bomb in a process of its own onto a file system that has room for a disk, and for twice its size and 64 MiB
// of scratch.
func explode(t *testing.T, url string, files bool) exploded {
	t.Helper()
	dir := t.TempDir()
	volume := filepath.Join(dir, "volume")
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	mountMemory(t, volume, 3*diskSize+64<<20+4<<20)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), importInProcess+"="+url, importTo+"="+dir, fmt.Sprintf("%s=%t", importFiles, files))
	out, err := cmd.CombinedOutput()
	if exit, failed := errors.AsType[*exec.ExitError](err); err != nil && (!failed || exit.ExitCode() != 1) {
		t.Fatalf("the import did not end by itself: %v\n%s", err, out)
	}
	result, err := transfer.Decode(string(readFile(t, filepath.Join(dir, "report"))))
	if err != nil {
		t.Fatal(err)
	}
	var peak int64
	if _, err := fmt.Sscan(string(readFile(t, filepath.Join(dir, "peak"))), &peak); err != nil {
		t.Fatal(err)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return exploded{result, time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), peak}
}

// mountMemory mounts a file system of so many bytes.
func mountMemory(t *testing.T, dir string, size int64) {
	t.Helper()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size), "tmpfs", dir).CombinedOutput(); err != nil {
		need.Missing(t, "no file system can be mounted (%v: %s); run it as root", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("unmounting: %v: %s", err, out)
		}
	})
}

// writePeak notes how much memory this process had at its peak.
func writePeak(path string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	var kilobytes int64
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(line, &kilobytes); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(fmt.Sprint(kilobytes<<10)), 0o600)
}
