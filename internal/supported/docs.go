package supported

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kinds returns the kinds that have a list, in alphabetical order.
func Kinds() []string { return slices.Sorted(maps.Keys(tables())) }

// Fields returns the list of kind, in alphabetical order.
func Fields(kind string) []Field {
	t := tables()[kind]
	if t == nil {
		return nil
	}
	var all []Field
	for _, path := range slices.Sorted(maps.Keys(t.fields)) {
		all = append(all, t.fields[path])
	}
	return all
}

// Refused returns the paths of kind's leaves that are not acted on, in alphabetical order.
func Refused(kind string) []string {
	t := tables()[kind]
	if t == nil {
		return nil
	}
	var all []string
	for _, path := range slices.Sorted(maps.Keys(t.leaves)) {
		if !t.covers(path) {
			all = append(all, path)
		}
	}
	return all
}

// covers says whether a field of the table is path, or above it.
func (t *table) covers(path string) bool {
	for ; path != ""; path = parent(path) {
		if _, ok := t.fields[path]; ok {
			return true
		}
	}
	return false
}

// Markdown returns kind's chapter of the docs: what is acted on, and what is refused.
func Markdown(kind string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\nActed on, each with all that is below it:\n\n| field | values | note |\n|---|---|---|\n", kind)
	for _, f := range Fields(kind) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Path, strings.Join(f.Only, ", "), f.Note)
	}
	refused := Refused(kind)
	fmt.Fprintf(&b, "\nRefused at admission, with its path, until it is acted on (%d):\n\n", len(refused))
	for _, path := range refused {
		fmt.Fprintf(&b, "- `%s`\n", path)
	}
	return b.String()
}
