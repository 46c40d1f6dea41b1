package image

import (
	"strings"
	"testing"
)

func TestDetect(t *testing.T) {
	pad := func(at int, magic string) []byte {
		return append(make([]byte, at), magic+strings.Repeat("x", 600)...)
	}
	for name, c := range map[string]struct {
		head    []byte
		want    Format
		refused string
	}{
		"qcow2":          {pad(0, "QFI\xfb"), QCOW2, ""},
		"gzip":           {pad(0, "\x1f\x8b"), Gzip, ""},
		"xz":             {pad(0, "\xfd7zXZ\x00"), XZ, ""},
		"zstd":           {pad(0, "\x28\xb5\x2f\xfd"), Zstd, ""},
		"pzstd's":        {pad(0, "\x50\x2a\x4d\x18\x04\x00\x00\x00\x00\x20\x00\x00\x28\xb5\x2f\xfd"), Zstd, ""},
		"two skipped":    {pad(0, "\x5f\x2a\x4d\x18\x00\x00\x00\x00\x50\x2a\x4d\x18\x01\x00\x00\x00x\x28\xb5\x2f\xfd"), Zstd, ""},
		"skipped, LZ4":   {pad(0, "\x50\x2a\x4d\x18\x00\x00\x00\x00\x04\x22\x4d\x18"), Raw, ""},
		"skipped for GB": {pad(0, "\x50\x2a\x4d\x18\xff\xff\xff\xff\x28\xb5\x2f\xfd"), Raw, ""},
		"anything":       {pad(0, "\xeb\x63\x90"), Raw, ""},
		"nothing":        {nil, Raw, ""},
		"bzip2":          {pad(0, "BZh91AY&SY"), Bzip2, ""},
		"text of that":   {pad(0, "BZh9 it is"), Raw, ""},
		"VMDK":           {pad(0, "KDMV"), VMDK, ""},
		"VDI":            {pad(0x40, "\x7f\x10\xda\xbe"), VDI, ""},
		"VHD":            {pad(0, "conectix"), VHD, ""},
		"VHDX":           {pad(0, "vhdxfile"), VHDX, ""},
		"a tar archive":  {pad(0x101, "ustar"), Tar, ""},
		"a descriptor":   {pad(0, "# Disk DescriptorFile\n"), "", "descriptor"},
		"vmfsSparse":     {pad(0, "COWD"), "", "vmfsSparse"},
		"seSparse":       {pad(0, "\xbe\xba\xfe\xca\x00\x00\x00\x00"), "", "seSparse"},
		"a zip archive":  {pad(0, "PK\x03\x04"), "", "zip"},
		"a short header": {[]byte("KDM"), Raw, ""},
	} {
		got, err := Detect(c.head)
		if got != c.want || (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestLooksLikeText(t *testing.T) {
	for text, want := range map[string]bool{
		"<html>": true, "": false, "a\x00b": false, "\xff\xfe": false, "grüße": true,
		strings.Repeat("x", 1023) + "ü": true, strings.Repeat("x", 1024) + "\x00": true, strings.Repeat("ü", 700): true,
		strings.Repeat("x", 1000) + "\xff" + strings.Repeat("x", 100): false,
	} {
		if got := LooksLikeText([]byte(text)); got != want {
			t.Errorf("%.20q…: got %v, want %v", text, got, want)
		}
	}
}
