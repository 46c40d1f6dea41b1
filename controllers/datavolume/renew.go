package datavolume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// annotationSettings on an importer pod stands for the cluster's settings that it was made for.
const annotationSettings = names.Domain + "import-settings"

// renewPod removes the pod of an importer that has failed and waits to be tried again, where it was made for other settings of
// registries or of the proxy than hold now: they may have been what it failed by. The next pass makes it anew.
func (r *Reconciler) renewPod(ctx context.Context, s *scope) error {
	if !s.plan.pods() || !onServer(s.dv.Spec.Source) || !waits(s.pod) {
		return nil
	}
	input := podInput{DataVolume: s.dv}
	for _, find := range []func(context.Context, *scope, *podInput) error{r.findPlaces, r.findProxy} {
		err := find(ctx, s, &input)
		if errors.Is(err, steps.ErrDone) {
			s.waiting = nil // what the importer says of its last run says more
			return nil
		}
		if err != nil {
			return err
		}
	}
	if s.pod.Annotations[annotationSettings] == settings(input) {
		return nil
	}
	log.FromContext(ctx).Info("Deleting the importer pod, which was made for other settings", "pod", s.pod.Name)
	if err := r.Delete(ctx, s.pod, client.Preconditions{UID: &s.pod.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s, which was made for other settings: %w", s.pod.Name, err)
	}
	return steps.ErrDone
}

// waits reports whether pod's importer has failed and is about to be started again.
func waits(pod *corev1.Pod) bool {
	if pod == nil || pod.DeletionTimestamp != nil || len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	status := pod.Status.ContainerStatuses[0]
	return status.State.Waiting != nil && status.LastTerminationState.Terminated != nil
}

// settings stands for what in has of the cluster's settings: places of images and the proxy, without its passwords, which
// nobody is to find out by trying.
func settings(in podInput) string {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%q %q %q %q %q", placeArguments(in.Places), // a hash takes all
		withoutPassword(in.Proxy.HTTP), withoutPassword(in.Proxy.HTTPS), in.Proxy.NoProxy, in.Proxy.Authorities)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// withoutPassword returns address without its password; nothing of one that is no address.
func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	return u.String()
}
