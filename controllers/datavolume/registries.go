package datavolume

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/containers/image/v5/docker/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/registries"
	"github.com/slipway-vm/slipway/internal/steps"
)

// registriesRetry is when a registries.conf that cannot be used is looked at again: no event comes when it changes.
const registriesRetry = 30 * time.Second

// findPlaces says where the image of a registry is read from, if that is the source. The DataVolume
// waits while nothing says it, or all is blocked.
func (r *Reconciler) findPlaces(ctx context.Context, s *scope, input *podInput) error {
	source := s.dv.Spec.Source
	if source == nil || source.Registry == nil || input.Binder || PulledByNode(source) {
		return nil
	}
	image, err := reference.ParseNormalizedNamed(strings.TrimPrefix(ptr.Deref(source.Registry.URL, ""), schemeDocker))
	if err != nil {
		return nil // the importer says what is wrong with it
	}
	settings, err := cdiconfig.Registries(ctx, r.Client, r.live, r.options.Namespace, s.insecure)
	if err != nil {
		return err
	}
	if input.Places, err = settings.Places(image); err != nil {
		s.waiting = &obstacle{reasonError, err.Error()}
		s.result.RequeueAfter = registriesRetry
		return steps.ErrDone
	}
	return nil
}

// addRegistry tells the container its image and where to look for it, and mounts what it needs to read it.
func addRegistry(registry *cdiv1.DataVolumeSourceRegistry, places []registries.Place, pod *corev1.Pod, container *corev1.Container) {
	container.Args = append(container.Args, "--url="+ptr.Deref(registry.URL, ""))
	container.Args = append(container.Args, placeArguments(places)...)
	if registry.Platform != nil && registry.Platform.Architecture != "" {
		container.Args = append(container.Args, "--architecture="+registry.Platform.Architecture)
	}
	addCertificates(ptr.Deref(registry.CertConfigMap, ""), pod, container)
	addCredentials(ptr.Deref(registry.SecretRef, ""), pod, container)
}

// placeArguments are the importer's for places: each by its address, in their order, unless there is but the one that
// the image itself names.
func placeArguments(places []registries.Place) []string {
	var arguments []string
	listed := slices.ContainsFunc(places, func(place registries.Place) bool { return place.Mirror })
	for _, place := range places {
		address := schemeDocker + place.Image.String()
		switch {
		case listed && place.Insecure:
			arguments = append(arguments, "--from="+address, "--insecure-from="+address)
		case listed:
			arguments = append(arguments, "--from="+address)
		case place.Insecure:
			arguments = append(arguments, "--insecure-skip-verify")
		}
	}
	return arguments
}
