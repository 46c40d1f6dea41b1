// Package registries says where the images of registries are read from, as an administrator sets
// it: by a registries.conf with mirrors, in the format that podman and CRI-O read too, and by a
// list of registries whose certificates nobody checks.
package registries

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/pkg/sysregistriesv2"
	"github.com/containers/image/v5/types"
	"golang.org/x/sys/unix"
)

// Key is the key of a ConfigMap under which a registries.conf is.
const Key = "registries.conf"

// Settings are what an administrator sets.
type Settings struct {
	// Insecure are registries, as host or host:port, whose certificates are not checked, and which
	// may have no TLS.
	Insecure []string
	// Conf is the text of a registries.conf. Empty: an image is read from the registry that it names.
	Conf string
	// Origin names, for messages, where Conf is from.
	Origin string
	// Fault says why there is no Conf although there should be one. Nothing is read from anywhere then:
	// what is missing may forbid it.
	Fault error
}

// Place is a registry that may have an image.
type Place struct {
	// Image is the image's name there.
	Image reference.Named
	// Mirror says that this is not the name by which the image was asked for.
	Mirror bool
	// Insecure says that the registry's certificate is not checked, and that it may have no TLS.
	Insecure bool
}

// Places returns where image is looked for, in this order: the mirrors that Conf has for it, then the
// registry that it names. Without a tag and a digest it is the latest. The error is for users: Conf is
// wrong, or allows no place.
func (s Settings) Places(image reference.Named) ([]Place, error) {
	image = reference.TagNameOnly(image)
	own := Place{Image: image, Insecure: s.insecure(image)}
	if s.Conf == "" && s.Fault == nil {
		return []Place{own}, nil
	}
	if err := s.readable(); err != nil {
		return nil, err
	}
	var places []Place
	err := s.load(func(system *types.SystemContext) (err error) {
		places, err = s.allowed(system, own)
		return err
	})
	if err != nil {
		return nil, err
	}
	return places, nil
}

// allowed are the places of an image, of which own is the one that it names, without those that are blocked.
func (s Settings) allowed(system *types.SystemContext, own Place) ([]Place, error) {
	registry, err := registryOf(system, own.Image)
	if err != nil {
		return nil, s.wrong(err)
	}
	if registry == nil {
		return []Place{own}, nil
	}
	sources, err := registry.PullSourcesFromReference(own.Image)
	if err != nil {
		return nil, fmt.Errorf("image %s gets no name by registry %q in %s: %w; correct its prefix and location", own.Image, registry.Prefix, s.Origin, err)
	}
	var places []Place
	for _, source := range sources {
		there, err := registryOf(system, source.Reference)
		if err != nil {
			return nil, s.wrong(err)
		}
		if there != nil && there.Blocked {
			continue
		}
		places = append(places, Place{
			Image: source.Reference, Mirror: source.Reference.String() != own.Image.String(),
			Insecure: source.Endpoint.Insecure || s.insecure(source.Reference),
		})
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("image %s is not read: registry %q is blocked in %s; take an image of another registry", own.Image, registry.Prefix, s.Origin)
	}
	return places, nil
}

// registryOf returns the registry that an image is of, nil when none has a prefix of it. To the library a prefix without
// a port is one of all ports of the host; each of them is another registry, with another's images and passwords.
func registryOf(system *types.SystemContext, image reference.Named) (*sysregistriesv2.Registry, error) {
	registry, err := sysregistriesv2.FindRegistry(system, image.Name())
	if err != nil {
		return nil, fmt.Errorf("looking for the registry of image %s: %w", image, err)
	}
	if registry == nil {
		return nil, nil //nolint:nilnil // none is named
	}
	domain := reference.Domain(image)
	host, _, _ := strings.Cut(registry.Prefix, "/")
	if host == domain || strings.HasPrefix(host, "*.") && !strings.Contains(domain, ":") {
		return registry, nil
	}
	return nil, nil //nolint:nilnil // one that has the port would be longer, and have been found
}

func (s Settings) insecure(image reference.Named) bool {
	return slices.Contains(s.Insecure, reference.Domain(image))
}

// load has the library read Conf, which it does from files alone: from one in memory, as long as use
// lasts.
func (s Settings) load(use func(*types.SystemContext) error) (err error) {
	fd, err := unix.MemfdCreate(Key, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3; a later one may demand the seal
		fd, err = unix.MemfdCreate(Key, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return fmt.Errorf("making a file in memory for %s: %w", s.Origin, err)
	}
	file := os.NewFile(uintptr(fd), Key)
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.WriteString(s.Conf); err != nil {
		return fmt.Errorf("writing %s into memory: %w", s.Origin, err)
	}
	// The library keeps what it read by the file's name, which the next file will have, too.
	defer sysregistriesv2.InvalidateCache()
	return use(&types.SystemContext{
		SystemRegistriesConfPath: fmt.Sprintf("/proc/self/fd/%d", fd), SystemRegistriesConfDirPath: os.DevNull,
	})
}
