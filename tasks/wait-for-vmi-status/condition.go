package waitforvmistatus

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// condition is a label selector whose keys are paths into an object.
type condition struct {
	requirements labels.Requirements
	paths        map[string]*jsonpath.JSONPath
}

// parse returns the condition that text describes, nil for an empty text.
func parse(text string) (*condition, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no text, no condition
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("could not parse condition: %w", err)
	}
	requirements, selectable := selector.Requirements()
	if !selectable || len(requirements) == 0 {
		return nil, errors.New("could not parse condition: it selects nothing")
	}
	c := &condition{requirements: requirements, paths: map[string]*jsonpath.JSONPath{}}
	for _, r := range requirements {
		path := jsonpath.New(r.Key()).AllowMissingKeys(true)
		if err := path.Parse("{." + r.Key() + "}"); err != nil {
			return nil, fmt.Errorf("invalid condition: cannot parse jsonpath %q: %w", r.Key(), err)
		}
		c.paths[r.Key()] = path
	}
	return c, nil
}

// holds reports whether every requirement is met by obj. A nil condition never holds.
func (c *condition) holds(obj any) (bool, error) {
	if c == nil {
		return false, nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return false, fmt.Errorf("converting the object: %w", err)
	}
	values := labels.Set{}
	for key, path := range c.paths {
		results, err := path.FindResults(tree)
		if err != nil {
			return false, fmt.Errorf("looking up %s: %w", key, err)
		}
		if len(results) == 1 && len(results[0]) == 1 {
			values[key] = fmt.Sprint(results[0][0].Interface())
		}
	}
	for _, r := range c.requirements {
		if !r.Matches(values) {
			return false, nil
		}
	}
	return true, nil
}
