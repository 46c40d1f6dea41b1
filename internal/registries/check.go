package registries

import (
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/pkg/sysregistriesv2"
	"github.com/containers/image/v5/types"
)

// Bounds of a registries.conf.
const (
	maxConf    = 256 << 10 // bytes
	maxMirrors = 16        // of one registry: the importer tries them all
)

// keys are those of a registries.conf that something acts on; the library has more, and passes over
// what it does not know.
type keys struct {
	Registry []sysregistriesv2.Registry `toml:"registry"`
}

// Check says what is wrong with Conf, by its Origin, for users; nothing, when there is none.
func (s Settings) Check() error {
	if s.Conf == "" && s.Fault == nil {
		return nil
	}
	if err := s.readable(); err != nil {
		return err
	}
	return s.load(func(system *types.SystemContext) error {
		_, err := sysregistriesv2.TryUpdatingCache(system)
		return s.wrong(err)
	})
}

// readable checks what the library does not.
func (s Settings) readable() error {
	if s.Fault != nil {
		return s.Fault
	}
	if len(s.Conf) > maxConf {
		return fmt.Errorf("%s has %d bytes; %d is the most", s.Origin, len(s.Conf), maxConf)
	}
	var content keys
	meta, err := toml.Decode(s.Conf, &content)
	if err != nil {
		return s.wrong(err)
	}
	if idle := meta.Undecoded(); len(idle) > 0 {
		return fmt.Errorf("%s: Slipway does not act on %s; remove it: [[registry]] has prefix, location, insecure, blocked and mirror-by-digest-only, [[registry.mirror]] has location, insecure and pull-from-mirror", s.Origin, idle[0])
	}
	seen := map[string]bool{}
	for i := range content.Registry {
		if err := checkRegistry(&content.Registry[i], seen); err != nil {
			return fmt.Errorf("%s: registry[%d]: %w", s.Origin, i, err)
		}
	}
	return nil
}

// checkRegistry checks one registry and adds its prefix to those that were seen.
func checkRegistry(registry *sysregistriesv2.Registry, seen map[string]bool) error {
	prefix := registry.Prefix
	if prefix == "" {
		prefix = registry.Location
	}
	prefix = strings.TrimRight(prefix, "/")
	if seen[prefix] {
		return fmt.Errorf("there is another registry with the prefix %q; write them as one", prefix)
	}
	seen[prefix] = true
	if len(registry.Mirrors) > maxMirrors {
		return fmt.Errorf("it has %d mirrors; %d is the most", len(registry.Mirrors), maxMirrors)
	}
	names := []string{registry.Location}
	if !strings.HasPrefix(prefix, "*.") {
		names = append(names, prefix)
	}
	for i := range registry.Mirrors {
		names = append(names, registry.Mirrors[i].Location)
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

// checkName checks the beginning of images' names. That one is missing where it must not be the library says.
func checkName(name string) error {
	const instead = "write host, host:port or host:port/path"
	if name == "" {
		return nil
	}
	name = strings.TrimRight(name, "/")
	image, err := reference.ParseNormalizedNamed(name + "/image")
	if err != nil {
		return fmt.Errorf("%q is no registry: %w; %s", name, err, instead)
	}
	if host, _, _ := strings.Cut(name, "/"); reference.Domain(image) != host {
		return fmt.Errorf("%q does not begin with the host of a registry; %s, the host with a dot or a port", name, instead)
	}
	return nil
}

// wrong names Conf in the library's error, in the place of the file in memory.
func (s Settings) wrong(err error) error {
	if err == nil {
		return nil
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return fmt.Errorf("%s cannot be read: %w; correct it", s.Origin, err)
}
