package mirror

import (
	"path"
	"slices"
	"strings"
)

// entry is one source of binary packages.
type entry struct {
	uris, suites, components []string
	// signedBy names the key that the source must be signed by; empty for any that apt trusts.
	signedBy string
}

// releases are what Debian's archive calls its releases.
var releases = []string{
	"bullseye", "bookworm", "trixie", "forky", "duke", "sid", "oldoldstable", "oldstable", "stable", "testing", "unstable",
}

// rank is 0 when the entry is not of the archive, and else tells how sure it is that it is Debian's, not another one
// that uses the names of Debian's releases: by the key.
func (e entry) rank(archive string) int {
	if !slices.Contains(e.components, "main") || !slices.ContainsFunc(e.suites, func(s string) bool { return holds(s, archive) }) {
		return 0
	}
	switch {
	case strings.HasPrefix(path.Base(e.signedBy), "debian-archive-"):
		return 3
	case e.signedBy == "":
		return 2
	default:
		return 1
	}
}

// holds says whether a suite is a release in the archive.
func holds(suite, archive string) bool {
	suite = strings.TrimSuffix(suite, "/")
	if archive == Main {
		return slices.Contains(releases, suite)
	}
	for _, suffix := range []string{"-security", "/updates"} {
		if release, ok := strings.CutSuffix(suite, suffix); ok {
			return slices.Contains(releases, release)
		}
	}
	return false
}

// parseLines reads the format of one line an entry: deb [options] address suite component...
func parseLines(text string) []entry {
	var entries []entry
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !ok || strings.TrimLeft(rest, " \t") == rest {
			continue
		}
		rest = strings.TrimSpace(rest)
		var e entry
		if options, after, ok := strings.Cut(rest, "]"); ok && strings.HasPrefix(options, "[") {
			e.signedBy = signedBy(options[1:])
			rest = after
		}
		fields := strings.Fields(rest)
		if len(fields) < 3 {
			continue
		}
		e.uris, e.suites, e.components = fields[:1], fields[1:2], fields[2:]
		entries = append(entries, e)
	}
	return entries
}

// signedBy finds the key among the options of a line.
func signedBy(options string) string {
	for option := range strings.FieldsSeq(options) {
		if name, value, ok := strings.Cut(option, "="); ok && strings.EqualFold(name, "signed-by") {
			return value
		}
	}
	return ""
}

// parseStanzas reads the deb822 format: stanzas of fields, apart by empty lines.
func parseStanzas(text string) []entry {
	var entries []entry
	fields, last := map[string]string{}, ""
	end := func() {
		if e, ok := stanzaEntry(fields); ok {
			entries = append(entries, e)
		}
		fields, last = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case line == "":
			end()
		case line[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			fields[last] += " " + strings.TrimSpace(line)
		default:
			name, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(name))
			fields[last] = strings.TrimSpace(value)
		}
	}
	end()
	return entries
}

func stanzaEntry(fields map[string]string) (entry, bool) {
	off := []string{"no", "false", "without", "off", "disable"} // as apt reads it
	if slices.Contains(off, strings.ToLower(fields["enabled"])) || !slices.Contains(strings.Fields(fields["types"]), "deb") {
		return entry{}, false
	}
	return entry{
		uris: strings.Fields(fields["uris"]), suites: strings.Fields(fields["suites"]), components: strings.Fields(fields["components"]),
		signedBy: fields["signed-by"],
	}, true
}
