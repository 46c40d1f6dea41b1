package loopdev_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-vm/slipway/runtime/hostpath/loopdev"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

var devices = loopdev.Devices{Dir: "/dev", Sys: "/sys"}

func TestAttachGivesTheSameDeviceAgain(t *testing.T) {
	file := image(t)
	path, err := devices.Attach(file)
	check(t, err)
	again, err := devices.Attach(file)
	check(t, err)
	if path == "" || path != again {
		t.Errorf("attached to %q, then %q", path, again)
	}
	found, err := devices.Find(file)
	if check(t, err); found != path {
		t.Errorf("found %q, want %q", found, path)
	}
}

func TestWhatIsWrittenToTheDeviceIsInTheFile(t *testing.T) {
	file := image(t)
	path, err := devices.Attach(file)
	check(t, err)
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	check(t, err)
	defer device.Close()
	_, err = device.WriteAt([]byte("block"), 4096)
	check(t, err)
	check(t, devices.Flush(file))
	data := make([]byte, 5)
	_, err = file.ReadAt(data, 4096)
	if check(t, err); string(data) != "block" {
		t.Errorf("the file holds %q", data)
	}
}

func TestDetachFreesTheDeviceAndCanBeRepeated(t *testing.T) {
	file := image(t)
	_, err := devices.Attach(file)
	check(t, err)
	check(t, devices.Detach(file))
	check(t, devices.Detach(file))
	if path, err := devices.Find(file); err != nil || path != "" {
		t.Errorf("found %q, %v after the detach", path, err)
	}
}

func TestADeviceInUseGetsTheSizeOfItsFile(t *testing.T) {
	file := image(t)
	check(t, devices.Fit(file)) // there is none yet
	path, err := devices.Attach(file)
	check(t, err)
	device, err := os.Open(path)
	check(t, err)
	defer device.Close()
	for _, step := range []func() error{
		func() error { return devices.Fit(file) },
		func() error { _, err := devices.Attach(file); return err },
	} {
		info, err := file.Stat()
		check(t, err)
		check(t, file.Truncate(info.Size()*2))
		check(t, step())
		if size, err := device.Seek(0, io.SeekEnd); err != nil || size != info.Size()*2 {
			t.Errorf("the device has %d bytes (%v), want %d", size, err, info.Size()*2)
		}
	}
}

func image(t *testing.T) *os.File {
	t.Helper()
	need.Root(t, "make loop devices")
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	check(t, err)
	check(t, file.Truncate(16<<20))
	t.Cleanup(func() {
		check(t, devices.Detach(file))
		check(t, file.Close())
	})
	return file
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestThereAreAsManyDevicesAsAsked(t *testing.T) {
	seen := map[string]bool{}
	for range 12 { // a kernel begins with 8
		path, err := devices.Attach(image(t))
		check(t, err)
		seen[path] = true
	}
	if len(seen) != 12 {
		t.Errorf("12 files share %d devices", len(seen))
	}
}
