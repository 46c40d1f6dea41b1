package qcow2

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/tests/fixture/need"
)

func image(t *testing.T, size int64, backing *Backing) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := Create(path, size, backing); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestInspect(t *testing.T) {
	good := image(t, 3<<30, nil)
	edited := func(offset int, value ...byte) []byte {
		out := bytes.Clone(good)
		copy(out[offset:], value)
		return out
	}
	dataFileExtension := edited(104, binary.BigEndian.AppendUint32(nil, extensionDataFile)...)
	cases := map[string]struct {
		image     []byte
		want      Info
		wantError string
	}{
		"a qcow2 that stands alone":         {image: good, want: Info{QCOW2: true, Size: 3 << 30}},
		"a raw image is rounded to sectors": {image: make([]byte, 1000), want: Info{Size: 1024}},
		"an empty file":                     {image: nil, wantError: "is empty"},
		"a backing file":                    {image: image(t, 1<<20, &Backing{Path: "/etc/shadow", Format: "raw"}), wantError: "backing file"},
		"a data file by feature bit":        {image: edited(79, 4), wantError: "in another file"},
		"a data file by extension":          {image: dataFileExtension, wantError: "external data file"},
		"encryption":                        {image: edited(35, 1), wantError: "encrypted"},
		"a size beyond reason":              {image: edited(24, 0x7f), wantError: "claims"},
		"cluster bits beyond reason":        {image: edited(23, 63), wantError: "damaged"},
		"a header longer than its cluster":  {image: edited(100, 0x7f), wantError: "damaged"},
		"an unknown version":                {image: edited(7, 9), wantError: "version 9"},
		"a header that is cut off":          {image: good[:60], wantError: "cut off"},
		"a VMDK":                            {image: append([]byte("KDMV"), make([]byte, 600)...), wantError: "VMDK"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Inspect(bytes.NewReader(c.image), int64(len(c.image)))
			if c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Fatalf("error %v, want one with %q", err, c.wantError)
				}
				return
			}
			if err != nil || got != c.want {
				t.Fatalf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestQEMUTakesWhatCreateWrites(t *testing.T) {
	need.Program(t, "qemu-img", "qemu-utils")
	dir := t.TempDir()
	base := filepath.Join(dir, "base")
	if err := os.WriteFile(base, bytes.Repeat([]byte("slipway\n"), 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, empty := filepath.Join(dir, "overlay.qcow2"), filepath.Join(dir, "empty.qcow2")
	if err := Create(overlay, 65536, &Backing{Path: base, Format: "raw"}); err != nil {
		t.Fatal(err)
	}
	if err := Create(empty, 40<<40, nil); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", overlay}, {"check", empty}, {"compare", "-f", "raw", "-F", "qcow2", base, overlay},
	} {
		if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
			t.Errorf("qemu-img %v: %v\n%s", args, err, out)
		}
	}
	if err := Create(empty, 1<<20, nil); err == nil {
		t.Error("an existing file was overwritten")
	}
}
