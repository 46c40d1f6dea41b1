package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

func TestLoopDevicesOnTopComeFirst(t *testing.T) {
	all := []loop{
		{path: "top", number: 3, disk: 2, behind: file{5, 1}},
		{path: "another's", number: 4, behind: file{1, 1}},
		{path: "on another's", number: 5, disk: 4, behind: file{5, 2}},
		{path: "volume", number: 1, behind: file{9, 7}},
		{path: "kubelet's", number: 2, disk: 1, behind: file{5, 3}},
	}
	var got []string
	for _, l := range stackedOn(all, func(f file) bool { return f.device == 9 }) {
		got = append(got, l.path)
	}
	if want := []string{"top", "kubelet's", "volume"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A pool with a Block volume, on which the kubelet has a device of its own, is let go whole.
func TestThePoolIsLetGoWithItsBlockVolumes(t *testing.T) {
	needsRoot(t)
	needsProgram(t, "mkfs.xfs", "xfsprogs")
	for name, plain := range map[string]bool{"a file system of its own": false, "a plain folder": true} {
		t.Run(name, func(t *testing.T) {
			n := layout.Node{Dir: t.TempDir()}
			if plain {
				if err := os.MkdirAll(n.Pool(), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(n.Pool(), ".plain"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := MountPool(t.Context(), n, t.Logf); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := UnmountBelow(n.Dir); err != nil {
					t.Error(err)
				}
			})
			other := attach(t, filepath.Join(t.TempDir(), "other"))
			volume := attach(t, filepath.Join(n.Pool(), "volume"))
			kubelets := attach(t, volume)
			if err := DetachPool(n); err != nil {
				t.Fatal(err)
			}
			if err := UnmountBelow(n.Dir); err != nil {
				t.Fatal(err)
			}
			left := losetup(t, "--list", "--noheadings", "--output", "NAME,BACK-FILE")
			for _, gone := range []string{volume + " ", kubelets + " ", n.PoolImage()} {
				if strings.Contains(left+" ", gone) {
					t.Errorf("%s is still in use:\n%s", gone, left)
				}
			}
			if !strings.Contains(left, other+" ") {
				t.Errorf("the device of a file outside the pool was freed too:\n%s", left)
			}
		})
	}
}

// attach puts a loop device onto a file, made when it is not there, or onto a device.
func attach(t *testing.T, file string) string {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		err = f.Truncate(16 << 20)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	device := losetup(t, "--find", "--show", file)
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() }) // free already when all is well
	return device
}

func losetup(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "losetup", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// needsRoot ends the test without the rights of root.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		lacking(t, "it needs root for mounts, devices and networks; run it as root")
	}
}

// needsProgram ends the test without a program.
func needsProgram(t *testing.T, name, debian string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		lacking(t, "it needs the program "+name+"; install Debian's package "+debian)
	}
}

// lacking skips the test for what the machine lacks, or fails it where make demands all tests.
func lacking(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("SLIPWAY_REQUIRE") == "1" {
		t.Fatal(what + "; or unset SLIPWAY_REQUIRE to skip it")
	}
	t.Skip(what)
}
