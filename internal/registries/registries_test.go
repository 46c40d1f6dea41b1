package registries

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containers/image/v5/docker/reference"
)

// hub has most of what a registries.conf can say.
const hub = `
[[registry]]
prefix = "quay.io"
location = "quay.io"
[[registry.mirror]]
location = "near.example.com:5000/quay"
insecure = true
[[registry.mirror]]
location = "far.example.com"
pull-from-mirror = "digest-only"

[[registry]]
prefix = "quay.io/team"
location = "archive.example.com/old-team"

[[registry]]
location = "closed.example.com"
blocked = true
[[registry.mirror]]
location = "near.example.com:5000/closed"

[[registry]]
location = "bad.example.com"
blocked = true

[[registry]]
location = "docker.io"
mirror-by-digest-only = true
[[registry.mirror]]
location = "bad.example.com/hub"
[[registry.mirror]]
location = "near.example.com:5000/hub"

[[registry]]
prefix = "*.internal.example.com"
insecure = true

[[registry]]
location = "corp.example.com"
insecure = true
[[registry.mirror]]
location = "cache.example.com/corp"

[[registry]]
location = "corp.example.com:8443"
blocked = true
[[registry.mirror]]
location = "bad.example.com:5000"
`

// text is a list of places, with ~ for what is insecure and + for a mirror.
func text(places []Place) []string {
	var all []string
	for _, place := range places {
		name := place.Image.String()
		if place.Mirror {
			name = "+" + name
		}
		if place.Insecure {
			name = "~" + name
		}
		all = append(all, name)
	}
	return all
}

func named(t *testing.T, name string) reference.Named {
	t.Helper()
	image, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestPlacesOfAnImage(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("ab", 32)
	for image, want := range map[string][]string{
		"other.example.com/a:1":        {"other.example.com/a:1"},
		"other.example.com/a":          {"other.example.com/a:latest"},
		"lax.example.com:5000/a:1":     {"~lax.example.com:5000/a:1"},
		"quay.io/disks/a:1":            {"~+near.example.com:5000/quay/disks/a:1", "quay.io/disks/a:1"},
		"quay.io/disks/a" + digest:     {"~+near.example.com:5000/quay/disks/a" + digest, "~+far.example.com/disks/a" + digest, "quay.io/disks/a" + digest},
		"quay.io/team/a:1":             {"+archive.example.com/old-team/a:1"},
		"quay.io/teamwork/a:1":         {"~+near.example.com:5000/quay/teamwork/a:1", "quay.io/teamwork/a:1"},
		"closed.example.com/a:1":       {"+near.example.com:5000/closed/a:1"},
		"fedora:40":                    {"docker.io/library/fedora:40"},
		"fedora" + digest:              {"+near.example.com:5000/hub/library/fedora" + digest, "docker.io/library/fedora" + digest},
		"one.internal.example.com/a:1": {"~one.internal.example.com/a:1"},
		"internal.example.com/a:1":     {"internal.example.com/a:1"},
		"corp.example.com/a:1":         {"+cache.example.com/corp/a:1", "~corp.example.com/a:1"},
		"corp.example.com:5000/a:1":    {"corp.example.com:5000/a:1"},
		"corp.example.com:8443/a:1":    {"+bad.example.com:5000/a:1"},
		"bad.example.com:5000/a:1":     {"bad.example.com:5000/a:1"},
		"quay.io:443/team/a:1":         {"quay.io:443/team/a:1"},
		"a.internal.example.com:1/a:1": {"a.internal.example.com:1/a:1"},
		"bad.example.com.example/a:1":  {"bad.example.com.example/a:1"},
	} {
		settings := Settings{Conf: hub, Origin: "it", Insecure: []string{"lax.example.com:5000", "far.example.com"}}
		places, err := settings.Places(named(t, image))
		if got := text(places); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v; want %q", image, got, err, want)
		}
	}
	plain := Settings{Insecure: []string{"a.example.com"}}
	if places, err := plain.Places(named(t, "a.example.com/b")); err != nil || !slices.Equal(text(places), []string{"~a.example.com/b:latest"}) {
		t.Errorf("without a registries.conf: %q, %v", text(places), err)
	}
}

func TestPlacesThatThereAreNot(t *testing.T) {
	_, err := Settings{Conf: hub, Origin: "ConfigMap a/b"}.Places(named(t, "bad.example.com/a:1"))
	if err == nil || !strings.Contains(err.Error(), "blocked in ConfigMap a/b") {
		t.Errorf("a blocked registry: %v", err)
	}
	missing := errors.New("there is none")
	if _, err := (Settings{Fault: missing}).Places(named(t, "a.example.com/a:1")); !errors.Is(err, missing) {
		t.Errorf("a registries.conf that is not there: %v", err)
	}
	if err := (Settings{Fault: missing}).Check(); !errors.Is(err, missing) {
		t.Errorf("a registries.conf that is not there: %v", err)
	}
}

func TestARegistriesConfIsChecked(t *testing.T) {
	mirrors := strings.Repeat("[[registry.mirror]]\nlocation = \"a.example.com\"\n", maxMirrors+1)
	for conf, want := range map[string]string{
		hub:              "",
		"":               "",
		"# nothing\n":    "",
		"[[registry]":    "line 1",
		"registry = 3":   "cannot be read",
		"[[registry]]\n": "location and prefix are unset",
		"[[registry]]\nlocation = \"https://a.example.com\"":                                                              "write host, host:port",
		"[[registry]]\nlocation = \"mirror\"":                                                                             "a dot or a port",
		"[[registry]]\nlocation = \"a.example.com/Team\"":                                                                 "write host, host:port",
		"[[registry]]\nlocation = \"a.example.com/disk:1\"":                                                               "write host, host:port",
		"[[registry]]\nlocation = \"a.example.com\"\n[[registry.mirror]]\ninsecure = true":                                "mirror location is unset",
		"[[registry]]\nlocation = \"a.example.com\"\n[[registry.mirror]]\nlocation = \"b\"":                               "a dot or a port",
		"[[registry]]\nlocation = \"a.example.com\"\n[[registry.mirror]]\nlocation = \"b.x\"\npull-from-mirror = \"now\"": "pull-from-mirror",
		"[[registry]]\nlocation = \"a.example.com\"\n[[registry]]\nlocation = \"a.example.com/\"":                         "registry[1]: there is another",
		"[[registry]]\nlocation = \"a.example.com\"\ninsecure = \"yes\"":                                                  "cannot be read",
		"[[registry]]\nlocation = \"a.example.com\"\nprefer = 1":                                                          "does not act on registry.prefer",
		"unqualified-search-registries = [\"a.example.com\"]":                                                             "does not act on unqualified-search-registries",
		"credential-helpers = [\"pass\"]":                                                                                 "does not act on credential-helpers",
		"additional-layer-store-auth-helper = \"sh\"":                                                                     "does not act on additional-layer-store-auth-helper",
		"[registries.insecure]\nregistries = [\"a.example.com\"]":                                                         "does not act on registries",
		"[aliases]\na = \"b.example.com/a\"":                                                                              "does not act on aliases",
		"[[registry]]\nlocation = \"c.example.com\"\n" + mirrors:                                                          "has 17 mirrors; 16 is the most",
		"#" + strings.Repeat("x", maxConf):                                                                                "is the most",
	} {
		err := Settings{Conf: conf, Origin: "ConfigMap a/b"}.Check()
		short := conf[:min(len(conf), 200)]
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", short, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ConfigMap a/b") || strings.Contains(err.Error(), "/proc/") {
			t.Errorf("%q: got %v, want %q and the ConfigMap's name", short, err, want)
		}
		if _, placed := (Settings{Conf: conf, Origin: "ConfigMap a/b"}).Places(named(t, "d.example.com/a:1")); placed == nil {
			t.Errorf("%q gives a place all the same", short)
		}
	}
}

// The library remembers files by their names, which files in memory have after each other.
func TestManyRegistriesConfsAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for round := range 50 {
				mirror := fmt.Sprintf("mirror-%d-%d.example.com", n, round)
				settings := Settings{Conf: "[[registry]]\nlocation = \"a.example.com\"\n[[registry.mirror]]\nlocation = \"" + mirror + "\"\n"}
				places, err := settings.Places(named(t, "a.example.com/b:1"))
				if err != nil || len(places) != 2 || places[0].Image.String() != mirror+"/b:1" {
					t.Errorf("%s: got %q, %v", mirror, text(places), err)
				}
			}
		})
	}
	all.Wait()
}
