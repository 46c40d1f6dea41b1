// Package flagparams reads the values of flags that hold parameters: name:value,name:value, as
// virtctl's flags for volumes, credentials and devices do.
package flagparams

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Errorf returns an error that says which flag is wrong, in the words that users of virtctl know.
func Errorf(flag, format string, args ...any) error {
	return fmt.Errorf("failed to parse \"--%s\" flag: %w", flag, fmt.Errorf(format, args...))
}

// Params are the parameters that the value of a flag holds.
type Params struct {
	// Flag is the name of the flag, without dashes.
	Flag   string
	values map[string]string
}

// Read splits text, the value of flag, which may hold the parameters of the given names only; any,
// when no name is given.
func Read(flag, text string, known ...string) (*Params, error) {
	p := &Params{Flag: flag, values: map[string]string{}}
	if text == "" {
		return nil, p.Errorf("params may not be empty")
	}
	for item := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(item, ":")
		if !ok {
			return nil, p.Errorf("params need to have at least one colon: %s", item)
		}
		if _, twice := p.values[name]; twice {
			return nil, p.Errorf("param %q is given twice", name)
		}
		p.values[name] = value
	}
	if len(known) == 0 {
		return p, nil
	}
	return p, p.Only(known...)
}

// Only returns an error when there is a parameter of another name than the known ones.
func (p *Params) Only(known ...string) error {
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name+":"+p.values[name])
		}
	}
	if len(unknown) > 0 {
		return p.Errorf("unknown param(s): %s; known are %s", strings.Join(unknown, ","), strings.Join(known, ", "))
	}
	return nil
}

// Errorf returns an error that names the flag.
func (p *Params) Errorf(format string, args ...any) error {
	return Errorf(p.Flag, format, args...)
}

// Text returns the value of a parameter, "" when it is not given.
func (p *Params) Text(name string) string { return p.values[name] }

// Optional returns the value of a parameter, nil when it is not given.
func (p *Params) Optional(name string) *string {
	if value := p.values[name]; value != "" {
		return &value
	}
	return nil
}

// List returns the items of a parameter, which semicolons separate.
func (p *Params) List(name string) []string {
	if p.values[name] == "" {
		return nil
	}
	return strings.Split(p.values[name], ";")
}

// Require returns an error when one of the parameters is not given.
func (p *Params) Require(names ...string) error {
	for _, name := range names {
		if p.values[name] == "" {
			return p.Errorf("%s must be specified", name)
		}
	}
	return nil
}

// Size returns the parameter size, nil when it is not given.
func (p *Params) Size() (*resource.Quantity, error) {
	text, ok := p.values["size"]
	if !ok {
		return nil, nil
	}
	size, err := resource.ParseQuantity(text)
	if err != nil {
		return nil, p.Errorf("failed to parse param \"size\": %w; write for example 10Gi", err)
	}
	return &size, nil
}

// BootOrder returns the parameter bootorder, nil when it is not given.
func (p *Params) BootOrder() (*uint, error) {
	text, ok := p.values["bootorder"]
	if !ok {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, p.Errorf("failed to parse param \"bootorder\": %w", err)
	}
	if n == 0 {
		return nil, p.Errorf("bootorder must be greater than 0")
	}
	order := uint(n)
	return &order, nil
}

// Source returns the namespace and name of the parameter src, which is required.
func (p *Params) Source() (namespace, name string, err error) {
	if err := p.Require("src"); err != nil {
		return "", "", err
	}
	if namespace, name, err = Prefixed(p.values["src"]); err != nil {
		return "", "", p.Errorf("src invalid: %w", err)
	}
	return namespace, name, nil
}

// LocalSource is Source for what is always in the VM's own namespace.
func (p *Params) LocalSource(kind string) (string, error) {
	namespace, name, err := p.Source()
	if err == nil && namespace != "" {
		err = p.Errorf("not allowed to specify namespace of %s %q", kind, name)
	}
	return name, err
}

// RemoteSource is Source for what must be named with its namespace.
func (p *Params) RemoteSource(kind string) (namespace, name string, err error) {
	if namespace, name, err = p.Source(); err == nil && namespace == "" {
		err = p.Errorf("namespace of %s %q must be specified; write src:NAMESPACE/%s", kind, name, name)
	}
	return namespace, name, err
}

// Prefixed splits prefix/name; the prefix may be missing.
func Prefixed(text string) (prefix, name string, err error) {
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
