package waitforvmistatus

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// jsonPath is a JSONPath template, and what is asked of the values that it finds.
type jsonPath struct {
	path *jsonpath.JSONPath
	// operator is "" when there only must be a value, else "==" or "!=".
	operator, value string
}

// parseJSONPath reads {path}, {path}=value, {path}==value or {path}!=value.
func parseJSONPath(written string) (condition, error) {
	written = strings.TrimSpace(written)
	end := closing(written)
	if end < 0 {
		return nil, fmt.Errorf("invalid condition: cannot parse jsonpath %q: write {.path.to.field}, then ==value or !=value if you like", written)
	}
	c := &jsonPath{path: jsonpath.New("condition").AllowMissingKeys(true)}
	if err := c.path.Parse(written[:end+1]); err != nil {
		return nil, fmt.Errorf("invalid condition: cannot parse jsonpath %q: %w", written[:end+1], err)
	}
	rest := strings.TrimSpace(written[end+1:])
	for _, operator := range []string{"!=", "==", "="} {
		value, found := strings.CutPrefix(rest, operator)
		if !found {
			continue
		}
		c.operator, c.value = operator, unquote(strings.TrimSpace(value))
		if operator == "=" {
			c.operator = "=="
		}
		return c, nil
	}
	if rest != "" {
		return nil, fmt.Errorf("invalid condition: cannot parse jsonpath: %q follows the braces; ==value or !=value may", rest)
	}
	return c, nil
}

// closing is the place of the brace that closes the one at the start of text, outside of quotes; -1 for none.
func closing(text string) int {
	if !strings.HasPrefix(text, "{") {
		return -1
	}
	quote := rune(0)
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '}':
			return i
		}
	}
	return -1
}

func unquote(text string) string {
	for _, quote := range []string{`"`, `'`} {
		if len(text) > 1 && strings.HasPrefix(text, quote) && strings.HasSuffix(text, quote) {
			return text[1 : len(text)-1]
		}
	}
	return text
}

// holds reports whether a value is found and, with ==, whether one of those found is the one
// asked for. With != none may be, so it holds also where there is no value.
func (c *jsonPath) holds(tree map[string]any) (bool, error) {
	results, err := c.path.FindResults(tree)
	if err != nil {
		if missing(err) {
			return c.operator == "!=", nil
		}
		return false, errors.Join(errors.New("looking up the jsonpath of the condition"), err)
	}
	var found []string
	for _, result := range results {
		for _, value := range result {
			found = append(found, text(value.Interface()))
		}
	}
	switch c.operator {
	case "==":
		return slices.Contains(found, c.value), nil
	case "!=":
		return !slices.Contains(found, c.value), nil
	}
	return len(found) > 0, nil
}

// missing says whether err only means that the object has not got so far yet.
func missing(err error) bool {
	return strings.Contains(err.Error(), "is not found") || strings.Contains(err.Error(), "out of bounds") || strings.Contains(err.Error(), "is not array or slice")
}
