// Package mirror finds where this machine gets Debian's packages from: the mirrors of its apt sources, and the proxy of its apt.
package mirror

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Setting is the environment variable that wins over apt's sources: the address of a server that holds debian and debian-security.
const Setting = "SLIPWAY_DEBIAN_MIRROR"

// Names of Debian's archives, as lock files have them.
const (
	Main     = "debian"
	Security = "debian-security"
)

// Mirrors are the addresses of each archive by its name, without a slash at their end, in the order in which to try them.
type Mirrors map[string][]string

// Find returns the mirrors that the environment or this machine's apt sources name: at least one of each archive.
func Find() (Mirrors, error) {
	if server := os.Getenv(Setting); server != "" {
		return fromSetting(server)
	}
	return fromSources("/etc/apt")
}

func fromSetting(server string) (Mirrors, error) {
	if !usable(server) {
		return nil, fmt.Errorf("%s is %q: give an http or https address of a server that holds %s and %s", Setting, server, Main, Security)
	}
	server = strings.TrimRight(server, "/")
	return Mirrors{Main: {server + "/" + Main}, Security: {server + "/" + Security}}, nil
}

// fromSources reads sources.list and sources.list.d of the folder etc.
func fromSources(etc string) (Mirrors, error) {
	files, err := sourceFiles(etc)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading apt's sources: %w", err)
		}
		if strings.HasSuffix(file, ".list") {
			entries = append(entries, parseLines(string(text))...)
		} else {
			entries = append(entries, parseStanzas(string(text))...)
		}
	}
	mirrors := Mirrors{}
	var unusable []string
	for _, archive := range []string{Main, Security} {
		uris, refused, err := addresses(entries, archive)
		if err != nil {
			return nil, err
		}
		mirrors[archive] = uris
		unusable = append(unusable, refused...)
	}
	if len(mirrors[Main]) > 0 && len(mirrors[Security]) > 0 {
		return mirrors, nil
	}
	return nil, missing(mirrors, files, unusable, etc)
}

// missing tells what was looked for, where, and what to do.
func missing(mirrors Mirrors, files, unusable []string, etc string) error {
	archives := []string{Main, Security}
	archives = slices.DeleteFunc(archives, func(a string) bool { return len(mirrors[a]) > 0 })
	read := strings.Join(files, ", ")
	if read == "" {
		read = etc + ", which has no sources"
	}
	note := ""
	if len(unusable) > 0 {
		note = " (found but not http, https or mirror+file: " + strings.Join(unusable, ", ") + ")"
	}
	return fmt.Errorf("no mirror of the archive %s in %s%s: add it there, or set %s to the address of a server that holds %s and %s",
		strings.Join(archives, " and "), read, note, Setting, Main, Security)
}

// sourceFiles lists the files that apt reads sources from, in its order.
func sourceFiles(etc string) ([]string, error) {
	var files []string
	list := filepath.Join(etc, "sources.list")
	if _, err := os.Stat(list); err == nil {
		files = append(files, list)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for apt's sources: %w", err)
	}
	parts, err := os.ReadDir(filepath.Join(etc, "sources.list.d"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for apt's sources: %w", err)
	}
	for _, part := range parts {
		if extension := filepath.Ext(part.Name()); extension == ".list" || extension == ".sources" {
			files = append(files, filepath.Join(etc, "sources.list.d", part.Name()))
		}
	}
	return files, nil
}

// addresses are the usable addresses of an archive in the entries that trust most in Debian's own key, and the unusable ones.
func addresses(entries []entry, archive string) (uris, unusable []string, err error) {
	best := slices.MaxFunc(append([]entry{{}}, entries...), func(a, b entry) int { return a.rank(archive) - b.rank(archive) })
	if best.rank(archive) == 0 {
		return nil, nil, nil
	}
	for _, e := range entries {
		if e.rank(archive) != best.rank(archive) {
			continue
		}
		for _, uri := range e.uris {
			listed := []string{uri}
			if file, ok := strings.CutPrefix(uri, "mirror+file:"); ok {
				if listed, err = readMirrorFile(file); err != nil {
					return nil, nil, err
				}
			}
			for _, address := range listed {
				address = strings.TrimRight(address, "/")
				switch {
				case !usable(address):
					unusable = append(unusable, address)
				case !slices.Contains(uris, address):
					uris = append(uris, address)
				}
			}
		}
	}
	return uris, unusable, nil
}

// readMirrorFile reads a list of mirrors as apt-transport-mirror(1) has it: an address a line, then words about it.
func readMirrorFile(file string) ([]string, error) {
	file = path.Clean("/" + strings.TrimLeft(file, "/"))
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the mirrors that apt's sources refer to: %w", err)
	}
	var uris []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) > 0 {
			uris = append(uris, fields[0])
		}
	}
	return uris, nil
}

func usable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
