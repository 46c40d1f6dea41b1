package launcher

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
)

// lay makes a file below dir, which was changed at a time, with its folders.
func lay(t *testing.T, dir, path string, at time.Time) {
	t.Helper()
	path = filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(filepath.Base(path)), 0o600); err != nil {
		t.Fatal(err)
	}
	for p := path; p != dir; p = filepath.Dir(p) {
		if err := os.Chtimes(p, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// A VM that was restored from another's snapshot has that one's state on its claim, under that one's UUID and name.
func TestAStateIsTheVMsUnderAnyName(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name = "copy"
	vmi.Spec.Domain.Firmware = &v1.Firmware{UUID: "of-the-copy", Bootloader: &v1.Bootloader{EFI: &v1.EFI{Persistent: new(true)}}}
	vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	now := time.Now()
	const own, tpm = "swtpm/of-the-copy/tpm2", "swtpm/of-the-copy/tpm2/tpm2-00.permall"
	for name, c := range map[string]struct {
		lay  map[string]time.Duration
		want []string
		gone []string
	}{
		"nothing is there": {nil, nil, []string{own, "nvram/copy_VARS.fd"}},
		"its own is there": {
			map[string]time.Duration{tpm: 0, "nvram/copy_VARS.fd": 0, "swtpm/other/tpm2/x": 1, "nvram/web_VARS.fd": 1},
			[]string{tpm, "nvram/copy_VARS.fd", "swtpm/other/tpm2/x", "nvram/web_VARS.fd"}, nil,
		},
		"another's is there": {
			map[string]time.Duration{"swtpm/of-web/tpm2/tpm2-00.permall": 0, "nvram/web_VARS.fd": 0, "nvram/notes": 1, "swtpm/notes": 1},
			[]string{tpm, "nvram/copy_VARS.fd", "nvram/notes", "swtpm/notes"}, []string{"swtpm/of-web", "nvram/web_VARS.fd"},
		},
		"several are there": {
			map[string]time.Duration{"swtpm/former/tpm2/x": 0, "swtpm/last/tpm2/tpm2-00.permall": 1, "nvram/former_VARS.fd": 0, "nvram/last_VARS.fd": 1},
			[]string{tpm, "swtpm/former/tpm2/x", "nvram/copy_VARS.fd", "nvram/former_VARS.fd"}, []string{"swtpm/last", "nvram/last_VARS.fd"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for path, later := range c.lay {
				lay(t, dir, path, now.Add(later*time.Hour))
			}
			for range 2 { // a start may break off, and come again
				if err := adoptState(vmi, dir); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range c.want {
				if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
					t.Error(err)
				}
			}
			for _, path := range c.gone {
				if _, err := os.Stat(filepath.Join(dir, path)); err == nil {
					t.Errorf("%s is there", path)
				}
			}
		})
	}
	if domain.TPMState(vmi, "") != own {
		t.Errorf("the TPM's state is in %s", domain.TPMState(vmi, ""))
	}
}

func TestAStateThatCannotBeReadIsTold(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "swtpm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := adopt(filepath.Join(dir, "swtpm", "uuid"), fs.DirEntry.IsDir); err == nil {
		t.Error("a file in the place of the folder is no error")
	}
}
