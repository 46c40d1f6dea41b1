package createvm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// flagError says which flag is wrong, in the words that users of virtctl know.
func flagError(flag, format string, args ...any) error {
	return fmt.Errorf("failed to parse \"--%s\" flag: %w", flag, fmt.Errorf(format, args...))
}

// parameters are the value of a flag of the form name:value,name:value.
type parameters struct {
	flag   string
	values map[string]string
}

// read splits text, which may hold the parameters of the given names only.
func read(flag, text string, known ...string) (*parameters, error) {
	p := &parameters{flag: flag, values: map[string]string{}}
	if text == "" {
		return nil, p.errorf("params may not be empty")
	}
	for item := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(item, ":")
		if !ok {
			return nil, p.errorf("params need to have at least one colon: %s", item)
		}
		if _, twice := p.values[name]; twice {
			return nil, p.errorf("param %q is given twice", name)
		}
		p.values[name] = value
	}
	return p, p.onlyKnown(known)
}

func (p *parameters) onlyKnown(known []string) error {
	if len(known) == 0 {
		return nil
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name+":"+p.values[name])
		}
	}
	if len(unknown) > 0 {
		return p.errorf("unknown param(s): %s; known are %s", strings.Join(unknown, ","), strings.Join(known, ", "))
	}
	return nil
}

func (p *parameters) errorf(format string, args ...any) error {
	return flagError(p.flag, format, args...)
}

// text returns the value of a parameter, "" when it is not given.
func (p *parameters) text(name string) string { return p.values[name] }

// optional returns the value of a parameter, nil when it is not given.
func (p *parameters) optional(name string) *string {
	if value := p.values[name]; value != "" {
		return &value
	}
	return nil
}

// list returns the items of a parameter, which semicolons separate.
func (p *parameters) list(name string) []string {
	if p.values[name] == "" {
		return nil
	}
	return strings.Split(p.values[name], ";")
}

// require returns an error when one of the parameters is not given.
func (p *parameters) require(names ...string) error {
	for _, name := range names {
		if p.values[name] == "" {
			return p.errorf("%s must be specified", name)
		}
	}
	return nil
}

// size returns the parameter size, nil when it is not given.
func (p *parameters) size() (*resource.Quantity, error) {
	text, ok := p.values["size"]
	if !ok {
		return nil, nil
	}
	size, err := resource.ParseQuantity(text)
	if err != nil {
		return nil, p.errorf("failed to parse param \"size\": %w; write for example 10Gi", err)
	}
	return &size, nil
}

// bootOrder returns the parameter bootorder, nil when it is not given.
func (p *parameters) bootOrder() (*uint, error) {
	text, ok := p.values["bootorder"]
	if !ok {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, p.errorf("failed to parse param \"bootorder\": %w", err)
	}
	if n == 0 {
		return nil, p.errorf("bootorder must be greater than 0")
	}
	order := uint(n)
	return &order, nil
}

// source returns the namespace and name of the parameter src, which is required.
func (p *parameters) source() (namespace, name string, err error) {
	if err := p.require("src"); err != nil {
		return "", "", err
	}
	if namespace, name, err = prefixed(p.values["src"]); err != nil {
		return "", "", p.errorf("src invalid: %w", err)
	}
	return namespace, name, nil
}

// localSource is source for what is always in the VM's own namespace.
func (p *parameters) localSource(kind string) (string, error) {
	namespace, name, err := p.source()
	if err == nil && namespace != "" {
		err = p.errorf("not allowed to specify namespace of %s %q", kind, name)
	}
	return name, err
}

// prefixed splits prefix/name; the prefix may be missing.
func prefixed(text string) (prefix, name string, err error) {
	prefix, name, found := strings.Cut(text, "/")
	if !found {
		prefix, name = "", text
	}
	if strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q has more than one slash", text)
	}
	if name == "" {
		return "", "", errors.New("name cannot be empty")
	}
	return prefix, name, nil
}
