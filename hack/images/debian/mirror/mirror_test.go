package mirror

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const modern = `# What apt reads since 2015.
Types: deb deb-src
# snapshot of some day
URIs: http://one.example.org/debian/ https://two.example.org/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://one.example.org/debian-security
Suites: bookworm-security
Components:
 main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`

const classic = `deb cdrom:[Debian GNU/Linux 12 _Bookworm_ - Official]/ bookworm main
# deb http://off.example.org/debian bookworm main
deb-src http://src.example.org/debian bookworm main
deb [ arch=amd64 trusted=yes ] http://one.example.org/debian stable main non-free # the nearest
deb	http://one.example.org/security stable-security main
`

// write makes an apt folder of the files and replaces ETC in them by its path.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	etc := t.TempDir()
	for name, text := range files {
		file := filepath.Join(etc, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "ETC", etc)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return etc
}

func TestFromSources(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		want  Mirrors
	}{
		"stanzas with comments, several addresses and a folded field": {
			files: map[string]string{"sources.list.d/debian.sources": modern},
			want:  Mirrors{Main: {"http://one.example.org/debian", "https://two.example.org/debian"}, Security: {"http://one.example.org/debian-security"}},
		},
		"lines with comments, options, a CD and sources": {
			files: map[string]string{"sources.list": classic},
			want:  Mirrors{Main: {"http://one.example.org/debian"}, Security: {"http://one.example.org/security"}},
		},
		"both formats, an address named twice": {
			files: map[string]string{
				"sources.list":          "deb http://one.example.org/debian/ bookworm main\n",
				"sources.list.d/a.list": "deb http://three.example.org/debian trixie main\ndeb http://one.example.org/debian bookworm main\ndeb http://one.example.org/debian-security bookworm/updates main\n",
			},
			want: Mirrors{Main: {"http://one.example.org/debian", "http://three.example.org/debian"}, Security: {"http://one.example.org/debian-security"}},
		},
		"a list of mirrors in a file": {
			files: map[string]string{
				"sources.list.d/debian.sources": "Types: deb\nURIs: mirror+file://ETC/mirrors/debian.list\nSuites: trixie\nComponents: main\n\n" +
					"Types: deb\nURIs: mirror+file:ETC/mirrors/security.list\nSuites: trixie-security\nComponents: main\n",
				"mirrors/debian.list":   "# nearest first\nhttp://one.example.org/debian\tpriority:1 type:deb\n\nhttp://two.example.org/debian/\tpriority:2\n",
				"mirrors/security.list": "http://one.example.org/debian-security",
			},
			want: Mirrors{Main: {"http://one.example.org/debian", "http://two.example.org/debian"}, Security: {"http://one.example.org/debian-security"}},
		},
		"others' archives that use Debian's names, and sources that are off": {
			files: map[string]string{
				"sources.list.d/a-vendor.list":     "deb [signed-by=/usr/share/keyrings/vendor.gpg] https://vendor.example.com bookworm main\ndeb https://docker.example.com/debian bookworm stable\n",
				"sources.list.d/b-off.sources":     "Enabled: no\nTypes: deb\nURIs: http://off.example.org/debian\nSuites: bookworm\nComponents: main\n",
				"sources.list.d/debian.sources":    modern,
				"sources.list.d/node.sources":      "Types: deb\nURIs: https://node.example.com\nSuites: nodistro\nComponents: main\n",
				"sources.list.d/old.list.disabled": "deb http://old.example.org/debian bookworm main\n",
			},
			want: Mirrors{Main: {"http://one.example.org/debian", "https://two.example.org/debian"}, Security: {"http://one.example.org/debian-security"}},
		},
		"an address that cannot be used beside one that can": {
			files: map[string]string{"sources.list": "deb file:/srv/debian bookworm main\n" + classic},
			want:  Mirrors{Main: {"http://one.example.org/debian"}, Security: {"http://one.example.org/security"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := fromSources(write(t, c.files))
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v (%v), want %v", got, err, c.want)
			}
		})
	}
}

func TestFromSourcesSaysWhatIsMissing(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		want  []string
	}{
		"no sources":       {want: []string{"archive debian and debian-security in", "which has no sources", Setting}},
		"another system's": {files: map[string]string{"sources.list": "deb http://x.example.org/ubuntu noble main\n"}, want: []string{"sources.list: add it there", Setting}},
		"no security archive": {
			files: map[string]string{"sources.list": "deb http://x.example.org/debian bookworm main\n", "sources.list.d/x.sources": ""},
			want:  []string{"archive debian-security in", "sources.list, ", "x.sources"},
		},
		"only what cannot be used": {
			files: map[string]string{"sources.list": "deb file:/srv/debian bookworm main\n"},
			want:  []string{"found but not http, https or mirror+file: file:/srv/debian"},
		},
		"a list of mirrors that is not there": {
			files: map[string]string{"sources.list": "deb mirror+file:ETC/none.list bookworm main\n"},
			want:  []string{"reading the mirrors that apt's sources refer to", "none.list"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := fromSources(write(t, c.files))
			if err == nil {
				t.Fatalf("no error but %v", got)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestTheSettingWins(t *testing.T) {
	t.Setenv(Setting, "https://mirror.example.org/pub/")
	got, err := Find()
	want := Mirrors{Main: {"https://mirror.example.org/pub/debian"}, Security: {"https://mirror.example.org/pub/debian-security"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	t.Setenv(Setting, "mirror.example.org")
	if _, err := Find(); err == nil || !strings.Contains(err.Error(), Setting) {
		t.Errorf("error %v, want one that names %s", err, Setting)
	}
}
