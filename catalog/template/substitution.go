package template

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

var (
	// reference is ${NAME}, or with one more $ before it what shall stay ${NAME} or ${{NAME}}.
	reference = regexp.MustCompile(`\$\$\{\{[a-zA-Z0-9_]+\}\}|\$?\$\{[a-zA-Z0-9_]+\}`)
	whole     = regexp.MustCompile(`^\$\{\{([a-zA-Z0-9_]+)\}\}$`)
)

// substitution puts values into a tree, remembers which it used, and collects what went wrong.
type substitution struct {
	values map[string]string
	used   map[string]bool
	errs   *multierror.Error
}

func (s *substitution) fail(err error) { s.errs = multierror.Append(s.errs, err) }

func (s *substitution) object(raw runtime.RawExtension) (*unstructured.Unstructured, error) {
	tree, err := decode(raw)
	if err != nil {
		return nil, err
	}
	dropFixedNamespace(tree)
	name := fmt.Sprint(tree["kind"])
	filled, ok := s.value(name, tree).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is no object", name)
	}
	return &unstructured.Unstructured{Object: filled}, nil
}

// dropFixedNamespace removes a namespace that no parameter fills: the user says where objects go.
func dropFixedNamespace(tree map[string]any) {
	metadata, ok := tree["metadata"].(map[string]any)
	if !ok {
		return
	}
	if namespace, ok := metadata["namespace"].(string); ok && !strings.Contains(namespace, "${") {
		delete(metadata, "namespace")
	}
}

func (s *substitution) value(path string, value any) any {
	switch v := value.(type) {
	case string:
		return s.scalar(path, v)
	case map[string]any:
		filled := make(map[string]any, len(v))
		for _, key := range sortedKeys(v) {
			name := s.text(path, key)
			if _, twice := filled[name]; twice {
				s.fail(fmt.Errorf("%s: two keys become %s", path, name))
			}
			filled[name] = s.value(path+"."+key, v[key])
		}
		return filled
	case []any:
		filled := make([]any, len(v))
		for i, item := range v {
			filled[i] = s.value(fmt.Sprintf("%s[%d]", path, i), item)
		}
		return filled
	}
	return value
}

// scalar replaces the references of one string; ${{NAME}} turns it into what the value is as JSON.
func (s *substitution) scalar(path, text string) any {
	match := whole.FindStringSubmatch(text)
	if match == nil {
		return s.text(path, text)
	}
	value, ok := s.lookup(path, match[1])
	if !ok {
		return text
	}
	var decoded any
	if err := json.Unmarshal([]byte(value), &decoded); err != nil {
		return value // a word is a string, as for the field's engines; where it may not be one, its kind's decoding says so
	}
	return decoded
}

func (s *substitution) text(path, text string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		if strings.HasPrefix(ref, "$$") {
			return ref[1:]
		}
		value, ok := s.lookup(path, ref[2:len(ref)-1])
		if !ok {
			return ref
		}
		return value
	})
}

func (s *substitution) lookup(path, name string) (string, bool) {
	value, ok := s.values[name]
	if !ok {
		s.fail(fmt.Errorf("%s: ${%s} names no parameter; declare it, or write $${%s} if the guest shall see ${%s}", path, name, name, name))
		return "", false
	}
	s.used[name] = true
	return value, true
}

func (s *substitution) labels(labels map[string]string) map[string]string {
	filled := make(map[string]string, len(labels))
	for _, key := range sortedKeys(labels) {
		value := labels[key]
		filled[s.text("objectLabels", key)] = s.text("objectLabels."+key, value)
	}
	return filled
}
