package imagefile

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	cases := map[string]struct {
		files map[string]string // a value of "-> x" is a link to x
		path  string
		want  string
		err   string
	}{
		"the only file under /disk":                {files: map[string]string{"disk/a.qcow2": "a", "etc/passwd": "p"}, want: "a"},
		"a file by its path":                       {files: map[string]string{"disk/a": "a", "disk/b": "b"}, path: "/disk/b", want: "b"},
		"a link inside the image":                  {files: map[string]string{"disk/a": "a", "b": "-> disk/a"}, path: "/b", want: "a"},
		"hidden files do not count":                {files: map[string]string{"disk/a": "a", "disk/.wh": "w"}, want: "a"},
		"several files":                            {files: map[string]string{"disk/a": "a", "disk/b": "b"}, err: "several files under /disk (a, b)"},
		"no /disk at all":                          {files: map[string]string{"etc/passwd": "p"}, err: "no file under /disk"},
		"a path that is not there":                 {files: map[string]string{"disk/a": "a"}, path: "/disk/x", err: "has no file /disk/x"},
		"a folder":                                 {files: map[string]string{"disk/a": "a"}, path: "/disk", err: "no regular file"},
		"an empty file":                            {files: map[string]string{"disk/a": ""}, err: "is empty"},
		"a path out of the image":                  {files: map[string]string{"disk/a": "a"}, path: "../../etc/passwd", err: "escapes"},
		"a link out of the image":                  {files: map[string]string{"disk/a": "-> ../../outside"}, path: "/disk/a", err: "escapes"},
		"a link out of the image under /disk only": {files: map[string]string{"disk/a": "-> /etc/passwd"}, err: "no file under /disk"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, content := range c.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				var err error
				if target, link := strings.CutPrefix(content, "-> "); link {
					err = os.Symlink(target, path)
				} else {
					err = os.WriteFile(path, []byte(content), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			file, err := Open(root, c.path)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			data, err := io.ReadAll(file)
			if err != nil || string(data) != c.want {
				t.Errorf("read %q, %v; want %q", data, err, c.want)
			}
		})
	}
}
