package source

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/types"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// Place is a registry that may have an image, perhaps by another name.
type Place struct {
	// URL is the image's address there, as in RegistryOptions.
	URL string
	// SkipVerify takes any certificate, and also a registry that has no TLS.
	SkipVerify bool
}

// opener is a place as the library asks it.
type opener struct {
	place     Place
	reference types.ImageReference
	system    *types.SystemContext
}

// parseImage reads the address of an image.
func parseImage(address string) (types.ImageReference, error) {
	name, ok := strings.CutPrefix(address, SchemeDocker)
	if !ok {
		return nil, transfer.Errorf(transfer.BadRequest, "the URL does not begin with %s", SchemeDocker)
	}
	image, err := docker.ParseReference("//" + name)
	if err != nil {
		return nil, transfer.Errorf(transfer.BadRequest, "the URL names no image: %w; write docker://host/name:tag or docker://host/name@sha256:…", err)
	}
	return image, nil
}

// places are where the image is looked for.
func (o RegistryOptions) places() []Place {
	if len(o.Places) == 0 {
		return []Place{{URL: o.URL, SkipVerify: o.SkipVerify}}
	}
	return o.Places
}

// openers prepares the places. The credentials are for the registry that the image itself names.
func (o RegistryOptions) openers() ([]opener, error) {
	own, err := parseImage(o.URL)
	if err != nil {
		return nil, err
	}
	system, err := o.system()
	if err != nil {
		return nil, err
	}
	host := reference.Domain(own.DockerReference())
	var all []opener
	for _, place := range o.places() {
		image, err := parseImage(place.URL)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", place.URL, err)
		}
		there := *system
		there.DockerInsecureSkipTLSVerify = types.NewOptionalBool(place.SkipVerify)
		if reference.Domain(image.DockerReference()) != host {
			there.DockerAuthConfig = &types.DockerAuthConfig{}
		}
		all = append(all, opener{place: place, reference: image, system: &there})
	}
	return all, nil
}

// openFirst opens the image at the first place that gives it.
func (r *Registry) openFirst(ctx context.Context, places []opener) error {
	r.before = nil
	for n, there := range places {
		r.at, r.rest = there.place, r.options.places()[n+1:]
		err := Both(r.open(ctx, there.reference, there.system), r.before)
		if err == nil || !Elsewhere(err) || len(r.rest) == 0 || ctx.Err() != nil {
			return err
		}
		r.before = err
	}
	return r.before
}

// Rest are the places after the one that the image is read from.
func (r *Registry) Rest() []Place { return slices.Clone(r.rest) }

// Before says why it is not read from the places before that; nil when there are none.
func (r *Registry) Before() error { return r.before }

// Elsewhere reports whether another registry may well give what err says that one did not: err
// is of the way to that registry or of what it sends, and not of the disk.
func Elsewhere(err error) bool {
	switch transfer.ReasonOf(err) {
	case transfer.NotFound, transfer.Unauthorized, transfer.TLSFailure, transfer.RedirectLoop, transfer.SourceChanged,
		transfer.ConnectionLost, transfer.SourceFailed, transfer.ChecksumMismatch:
		return true
	}
	return false
}

// Both is err, the failure of a place, with that of the places before it, if any. The last one
// gives the reason, which is the registry that the image itself names; unless it has a damaged image,
// and another may have a good one the next time. Where err is the disk's, that others may answer later
// is no reason to try again.
func Both(err, before error) error {
	switch {
	case err == nil || before == nil:
		return err
	case !Elsewhere(err):
		return fmt.Errorf("%w; before that: %s", err, before.Error())
	case !transfer.ReasonOf(err).Retryable() && transfer.ReasonOf(before).Retryable():
		return fmt.Errorf("%w; after that: %w", before, err)
	}
	return fmt.Errorf("%w; before that: %w", err, before)
}

// noRegistriesConf keeps the library from a registries.conf of its own choice: where an image is
// read from the places say.
func noRegistriesConf(system *types.SystemContext) {
	system.SystemRegistriesConfPath, system.SystemRegistriesConfDirPath = os.DevNull, os.DevNull
}
