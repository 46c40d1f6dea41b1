package source

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// FuzzContentRange reads whatever a server says of its part of a file: it is refused, or the part lies within the file.
func FuzzContentRange(f *testing.F) {
	for _, seed := range []string{
		"bytes 0-99/1000", "bytes 0-99/*", "bytes 99-0/1000", "bytes 0-1000/1000", "bytes -1-5/10", "bytes +0-5/10", "bytes */1000", "items 0-1/2", "bytes 0-9223372036854775807/*", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		span, err := contentRange(&http.Response{Header: http.Header{"Content-Range": {text}}})
		if err != nil {
			if transfer.ReasonOf(err) != transfer.SourceFailed {
				t.Error(err)
			}
			return
		}
		if span.start < 0 || span.end <= span.start || span.total != -1 && span.end > span.total {
			t.Errorf("%q is said to be %+v", text, span)
		}
	})
}

// FuzzLayer finds the disk in whatever claims to be a layer, under one that covers what it covers: it ends, with a file below /disk
// that nothing covers or with an error that has a reason.
func FuzzLayer(f *testing.F) {
	f.Add(layerWith("disk/", "disk/disk.img"), layerWith("disk/.wh.disk.img"))
	f.Add(layerWith("./disk/a", "disk/b@"), layerWith("disk/.wh..wh..opq"))
	f.Add(layerWith("disk/d/x"), layerWith("disk/d@", ".wh.disk"))
	f.Fuzz(func(t *testing.T, below, above []byte) {
		cover := cover{room: maxCover, names: map[string]covers{}}
		for _, data := range [][]byte{above, below} {
			file, err := (&layer{blob: &blob{image: &Registry{}}, content: io.NopCloser(bytes.NewReader(data))}).find(&cover)
			if err != nil {
				if reason := transfer.ReasonOf(err); reason != transfer.InvalidImage && reason != transfer.WrongFormat {
					t.Errorf("%s: %v", reason, err)
				}
				return
			}
			if file == nil {
				continue
			}
			if !strings.HasPrefix(file.Path, "disk/") || path.Clean(file.Path) != file.Path || file.Size < 0 {
				t.Errorf("the disk is %q of %d bytes", file.Path, file.Size)
			}
			_, _ = io.Copy(io.Discard, io.LimitReader(file, 1<<20)) // it ends
			return
		}
	})
}

// FuzzWhiteouts stacks layers of a few names, and compares the disk that is found with the files that are there when the layers are
// applied one after the other, from the lowest.
func FuzzWhiteouts(f *testing.F) {
	f.Add([]byte{0, 5, 255, 2})
	f.Add([]byte{0, 1, 255, 4, 255, 3})
	f.Add([]byte{6, 255, 7, 255, 8, 9})
	names := []string{
		"disk/a", "disk/b", "disk/.wh.a", "disk/.wh..wh..opq", ".wh.disk", ".wh..wh..opq", "disk/d/x", "disk/d/.wh.x", "disk/.wh.d", "disk/d/y", "etc/x", "disk/d/.wh..wh..opq",
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		var layers [][]string
		for part := range bytes.SplitSeq(program[:min(len(program), 64)], []byte{255}) {
			var entries []string
			for _, b := range part {
				entries = append(entries, names[int(b)%len(names)])
			}
			layers = append(layers, entries)
		}
		want := applied(layers)
		got := map[string]bool{}
		cover := cover{room: maxCover, names: map[string]covers{}}
		for _, entries := range slices.Backward(layers) {
			file, err := (&layer{blob: &blob{image: &Registry{}}, content: io.NopCloser(bytes.NewReader(layerWith(entries...)))}).find(&cover)
			if err != nil {
				t.Fatal(err)
			}
			if file != nil {
				got[file.Path] = true
				break
			}
		}
		for name := range got {
			if !want[name] {
				t.Errorf("%v: %s is found, of %v", layers, name, slices.Sorted(maps.Keys(want)))
			}
		}
		if len(got) == 0 && len(want) > 0 {
			t.Errorf("%v: nothing is found, of %v", layers, slices.Sorted(maps.Keys(want)))
		}
	})
}

// applied are the files below /disk that a file system of the layers has. What a layer hides is hidden of those below it alone.
func applied(layers [][]string) map[string]bool {
	files := map[string]bool{}
	for _, entries := range layers {
		for _, entry := range entries {
			folder, base := path.Split(entry)
			hidden, marks := strings.CutPrefix(base, whiteout)
			maps.DeleteFunc(files, func(name string, _ bool) bool {
				switch {
				case base == opaque:
					return strings.HasPrefix(name, folder)
				case marks:
					return name == folder+hidden || strings.HasPrefix(name, folder+hidden+"/")
				}
				return false
			})
		}
		for _, entry := range entries {
			if !strings.HasPrefix(path.Base(entry), whiteout) && strings.HasPrefix(entry, diskDir+"/") {
				files[entry] = true
			}
		}
	}
	return files
}

// layerWith is a layer with files of these names; a name that ends with / is a folder, one that ends with @ a link.
func layerWith(names ...string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		header := tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}
		switch {
		case strings.HasSuffix(name, "/"):
			header.Typeflag = tar.TypeDir
		case strings.HasSuffix(name, "@"):
			header.Name, header.Typeflag, header.Linkname = strings.TrimSuffix(name, "@"), tar.TypeSymlink, "elsewhere"
		}
		if err := w.WriteHeader(&header); err != nil {
			panic(fmt.Sprintf("a layer with %q: %v", name, err))
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}
