package disks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestWhatIsPluggedInIsAFolderOrABlockDevice(t *testing.T) {
	plain := write(t, filepath.Join(t.TempDir(), "disk.img"), 512)
	for _, path := range []string{plain.Name(), "/dev/null"} {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		volume := v1.Volume{Name: "v", VolumeSource: dataVolume()}
		if _, err := Plugged(file, vmi(nil), &volume, 1<<20); err == nil || !strings.Contains(err.Error(), "neither a folder nor a block device") {
			t.Errorf("%s: got %v", path, err)
		}
	}
}
