package declare

import (
	"fmt"
	"strings"
)

// Pairs reads items of an array parameter that are of the form KEY:VALUE; one without a key continues
// the value before it, after a space.
func Pairs(items []string) (map[string]string, error) {
	pairs := map[string]string{}
	last := ""
	for _, item := range items {
		key, value, ok := strings.Cut(item, ":")
		key = strings.TrimSpace(key)
		switch {
		case ok && key != "":
			last = key
			pairs[key] = value
		case last == "":
			return nil, fmt.Errorf("no key found before %q; pair should be in \"KEY:VAL\" format", item)
		default:
			pairs[last] += " " + item
		}
	}
	return pairs, nil
}
