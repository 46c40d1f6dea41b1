package waitforvmistatus

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/jsonpath"
)

// Prefixes that choose the language of a condition. No label selector begins with them, for a
// key of a selector holds no colon.
const (
	prefixJSONPath = "jsonpath:"
	prefixCEL      = "cel:"
)

// condition is what an object, as a tree of JSON values, may fulfil.
type condition interface {
	holds(tree map[string]any) (bool, error)
}

// parse returns the condition that is written, nil for none.
func parse(written string) (condition, error) {
	trimmed := strings.TrimSpace(written)
	switch {
	case trimmed == "":
		return nil, nil //nolint:nilnil // no text, no condition
	case strings.HasPrefix(trimmed, prefixJSONPath):
		return parseJSONPath(strings.TrimPrefix(trimmed, prefixJSONPath))
	case strings.HasPrefix(trimmed, prefixCEL):
		return parseCEL(strings.TrimPrefix(trimmed, prefixCEL))
	}
	return parseSelector(written)
}

// selector is a label selector whose keys are paths into an object.
type selector struct {
	requirements labels.Requirements
	paths        map[string]*jsonpath.JSONPath
}

func parseSelector(written string) (condition, error) {
	parsed, err := labels.Parse(written)
	if err != nil {
		return nil, fmt.Errorf("could not parse condition: %w; begin it with %s or %s to use one of those", err, prefixJSONPath, prefixCEL)
	}
	requirements, selectable := parsed.Requirements()
	if !selectable || len(requirements) == 0 {
		return nil, errors.New("could not parse condition: it selects nothing")
	}
	s := &selector{requirements: requirements, paths: map[string]*jsonpath.JSONPath{}}
	for _, r := range requirements {
		path := jsonpath.New(r.Key()).AllowMissingKeys(true)
		if err := path.Parse("{." + r.Key() + "}"); err != nil {
			return nil, fmt.Errorf("invalid condition: cannot parse jsonpath %q: %w", r.Key(), err)
		}
		s.paths[r.Key()] = path
	}
	return s, nil
}

// holds reports whether every requirement is met.
func (s *selector) holds(tree map[string]any) (bool, error) {
	values := labels.Set{}
	for key, path := range s.paths {
		results, err := path.FindResults(tree)
		if err != nil {
			return false, fmt.Errorf("looking up %s: %w", key, err)
		}
		if len(results) == 1 && len(results[0]) == 1 {
			values[key] = text(results[0][0].Interface())
		}
	}
	for _, r := range s.requirements {
		if !r.Matches(values) {
			return false, nil
		}
	}
	return true, nil
}

// text is a value as a condition compares it: a string as it is, anything else as JSON.
func text(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(data)
}
