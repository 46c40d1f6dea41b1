package modifywindowsisofile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/tasks/modify-windows-iso-file/iso"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// content of the disc's files; those without a prompt have other sizes.
var content = map[string][]byte{
	"boot/etfsboot.com":                       bytes.Repeat([]byte("bios"), 1024),
	"boot/bcd":                                []byte("bcd"),
	"bootmgr.efi":                             bytes.Repeat([]byte("bootmgr"), 999),
	"efi/microsoft/boot/efisys.bin":           bytes.Repeat([]byte("prompt: press any key"), 2000),
	"efi/microsoft/boot/efisys_noprompt.bin":  bytes.Repeat([]byte("no prompt"), 4000),
	"efi/microsoft/boot/cdboot.efi":           bytes.Repeat([]byte("cdboot with a prompt"), 700),
	"efi/microsoft/boot/cdboot_noprompt.efi":  bytes.Repeat([]byte("cdboot without"), 300),
	"efi/microsoft/boot/fonts/wgl4_boot.ttf":  []byte("font"),
	"sources/install.wim":                     bytes.Repeat([]byte("wim"), 100000),
	"sources/a folder with a long name/x.txt": []byte("x"),
}

// disc makes an iso file with Windows' layout; without leaves files away, args say of what kind it is.
func disc(t *testing.T, without string, args ...string) string {
	t.Helper()
	program := need.Program(t, "genisoimage", "genisoimage")
	root := t.TempDir()
	for name, data := range content {
		if without != "" && strings.Contains(name, without) {
			continue
		}
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "disk.img")
	args = append([]string{"-quiet", "-V", "WINDOWS", "-o", file}, args...)
	if out, err := exec.CommandContext(t.Context(), program, append(args, root)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// bootsBoth are the options of a disc that BIOS and EFI boot, as Windows' do.
var bootsBoth = []string{
	"-b", "boot/etfsboot.com", "-no-emul-boot", "-boot-load-size", "8", "-eltorito-alt-boot", "-e", "efi/microsoft/boot/efisys.bin", "-no-emul-boot",
}

func modify(t *testing.T, path string) (int, error) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return change(file)
}

// isoinfo reads a file by a program that is not ours.
func isoinfo(t *testing.T, image, name string, joliet bool) []byte {
	t.Helper()
	args := []string{"-i", image, "-x", name}
	if joliet {
		args = append(args, "-J")
	}
	var complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), need.Program(t, "isoinfo", "genisoimage"), args...)
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reading %s: %v: %s", name, err, complaints.String())
	}
	return out
}

// efiBoot reads what EFI boots from: the image that the catalogue names for its platform.
func efiBoot(t *testing.T, image string, n int) []byte {
	t.Helper()
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	catalogue := data[2048*binary.LittleEndian.Uint32(data[17*2048+71:]):]
	for at := 32; at < 2048; at += 32 {
		if catalogue[at] == 0x91 && catalogue[at+1] == 0xef {
			sector := binary.LittleEndian.Uint32(catalogue[at+32+8:])
			return data[2048*sector:][:n]
		}
	}
	t.Fatal("no entry for EFI")
	return nil
}

// contents reads a file from all file systems.
func contents(t *testing.T, path string, name []string) [][]byte {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	image, err := iso.Open(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	all, err := image.Contents(name...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAWindowsDiscBootsWithoutAPrompt(t *testing.T) {
	const folder = "efi/microsoft/boot/"
	for name, c := range map[string]struct {
		args []string
		iso  bool // isoinfo is asked too
		// trees is how many file systems have the boot files.
		trees int
	}{
		"ISO 9660 and Joliet":  {[]string{"-iso-level", "4", "-J", "-joliet-long"}, true, 3}, // one for names of 1999
		"and UDF":              {[]string{"-iso-level", "4", "-J", "-joliet-long", "-udf"}, true, 4},
		"names cut short":      {[]string{"-iso-level", "1", "-J", "-joliet-long"}, false, 1},
		"UDF, all else hidden": {[]string{"-udf", "-hide", "efi"}, false, 1},
		"UDF and Joliet":       {[]string{"-udf", "-J", "-joliet-long", "-hide", "efi"}, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			image := disc(t, "", append(c.args, bootsBoth...)...)
			before, err := os.ReadFile(image)
			if err != nil {
				t.Fatal(err)
			}
			changed, err := modify(t, image)
			if err != nil {
				t.Fatal(err)
			}
			after, err := os.ReadFile(image)
			if err != nil {
				t.Fatal(err)
			}
			if changed == 0 || changed > 10 || len(after) != len(before) {
				t.Errorf("%d sectors changed, %d bytes became %d", changed, len(before), len(after))
			}
			noPrompt := content[folder+"efisys_noprompt.bin"]
			if !bytes.Equal(efiBoot(t, image, len(noPrompt)), noPrompt) {
				t.Error("EFI boots from something else")
			}
			if c.iso {
				upper := func(s string) string { return "/" + strings.ToUpper(folder+s) + ";1" }
				if strings.Contains(strings.Join(c.args, " "), "-iso-level 4") {
					upper = func(s string) string { return "/" + folder + s }
				}
				for file, want := range map[string]string{"efisys.bin": "efisys_noprompt.bin", "cdboot.efi": "cdboot_noprompt.efi"} {
					if !bytes.Equal(isoinfo(t, image, upper(file), false), content[folder+want]) {
						t.Errorf("ISO 9660: %s is something else", file)
					}
					if !bytes.Equal(isoinfo(t, image, "/"+folder+file, true), content[folder+want]) {
						t.Errorf("Joliet: %s is something else", file)
					}
				}
			}
			trees := 0
			for name, want := range map[string]string{
				"efisys.bin": "efisys_noprompt.bin", "cdboot.efi": "cdboot_noprompt.efi", "cdboot_noprompt.efi": "cdboot_noprompt.efi",
			} {
				all := contents(t, image, boot(name))
				trees = max(trees, len(all))
				for i, got := range all {
					if !bytes.Equal(got, content[folder+want]) {
						t.Errorf("file system %d: %s is something else", i, name)
					}
				}
			}
			if trees != c.trees {
				t.Errorf("%d file systems have the boot files, want %d", trees, c.trees)
			}
			if changed, err := modify(t, image); err != nil || changed != 0 {
				t.Errorf("a second run changed %d sectors, %v", changed, err)
			}
		})
	}
}

func TestDiscsThatCannotBeChangedStayAsTheyAre(t *testing.T) {
	kind := []string{"-iso-level", "4", "-J", "-joliet-long", "-udf"}
	for name, c := range map[string]struct {
		without string
		boots   []string
		damage  func([]byte) []byte
		want    string
	}{
		"without efisys_noprompt.bin": {"efisys_noprompt", bootsBoth, nil, "Task expects that ISO file contains bootloader without prompt."},
		"without cdboot_noprompt.efi": {"cdboot_noprompt", bootsBoth, nil, "efi/microsoft/boot/efisys_noprompt.bin or efi/microsoft/boot/cdboot_noprompt.efi not found in the iso file!"},
		"without cdboot.efi":          {"cdboot.efi", bootsBoth, nil, "cdboot.efi]: not found in the iso file"},
		"nothing boots":               {"", nil, nil, "no boot catalogue"},
		"only BIOS boots":             {"", bootsBoth[:5], nil, "no boot entry for EFI"},
		"no iso file":                 {"", bootsBoth, func([]byte) []byte { return make([]byte, 1<<20) }, "this is no iso file"},
		"cut off":                     {"", bootsBoth, func(data []byte) []byte { return data[:270*2048] }, "damaged"},
		"empty":                       {"", bootsBoth, func([]byte) []byte { return nil }, "this is no iso file"},
		"a damaged UDF": {"", bootsBoth, func(data []byte) []byte {
			data[256*2048+5]++
			data[256*2048+4]++
			data[256*2048+3]++
			return data
		}, "UDF"},
	} {
		t.Run(name, func(t *testing.T) {
			image := disc(t, c.without, append(kind, c.boots...)...)
			if c.damage != nil {
				data, err := os.ReadFile(image)
				if err == nil {
					err = os.WriteFile(image, c.damage(data), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			before, err := os.ReadFile(image)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := modify(t, image); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ended with %v, want %q", err, c.want)
			}
			if after, err := os.ReadFile(image); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the iso file changed (%v)", err)
			}
		})
	}
}

// failing is a disk whose write number bad fails, and one that loses it.
type failing struct {
	*os.File
	writes, bad int
	lose        bool
}

func (f *failing) WriteAt(data []byte, at int64) (int, error) {
	f.writes++
	if f.writes == f.bad {
		if f.lose {
			return len(data), nil
		}
		return 0, errors.New("medium error")
	}
	return f.File.WriteAt(data, at)
}

func TestAFailedChangeIsPutBack(t *testing.T) {
	for _, lose := range []bool{false, true} {
		path := disc(t, "", append([]string{"-iso-level", "4", "-J", "-joliet-long", "-udf"}, bootsBoth...)...)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		image, err := iso.Open(file, int64(len(before)))
		if err != nil {
			t.Fatal(err)
		}
		if err := image.Point(boot(efisys), boot(efisysNoPrompt)); err != nil {
			t.Fatal(err)
		}
		if _, err := image.Commit(&failing{File: file, bad: 2, lose: lose}); err == nil {
			t.Error("a failure was not told")
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("after a failure (lost: %t) the iso file is another (%v)", lose, err)
		}
	}
}
