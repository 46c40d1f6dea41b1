package stepcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNoClone is the error of storage that cannot clone claims. What it was asked to clone would
// wait forever.
var ErrNoClone = errors.New("this storage cannot clone claims, so the step cache keeps nothing on it; set cache: \"off\"")

// reasonProvisioning is the reason of the events in which provisioners say on a claim what went wrong.
const reasonProvisioning = "ProvisioningFailed"

// refusals are what provisioners say that will never clone a claim: the sidecar of CSI drivers,
// Kubernetes for storage that has no CSI driver, and drivers in their own words.
var refusals = []string{
	"does not support clon", "doesn't support clon", "not support volume clon", "cloning is not supported", "clone is not supported",
	"clone_volume capability", "only csi plugin can provision a claim with a datasource", "volume content source is not supported",
}

// refuses reports whether the message says that claims are never cloned.
func refuses(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc(refusals, func(words string) bool { return strings.Contains(message, words) })
}

// unlessRefused waits for the clone in claim by wait, whose context ends with ErrNoClone as soon as
// the claim's provisioner says that it clones none.
func (s *Store) unlessRefused(ctx context.Context, claim client.ObjectKey, wait func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		if message := s.refusal(ctx, claim); message != "" {
			stop(fmt.Errorf("%w: its provisioner says: %s", ErrNoClone, message))
		}
	})
	err := wait(ctx)
	stop(nil)
	listening.Wait()
	return err
}

// refusal returns what the claim's provisioner says when it refuses to clone; empty when ctx ends
// before, or when this run may not listen. A lost watch is taken up again, from what was said until then.
func (s *Store) refusal(ctx context.Context, claim client.ObjectKey) string {
	for {
		said, lost := s.listen(ctx, claim)
		if !lost {
			return said
		}
	}
}

// listen is refusal until the watch is lost.
func (s *Store) listen(ctx context.Context, claim client.ObjectKey) (said string, lost bool) {
	watcher, err := s.Client.Watch(ctx, &corev1.EventList{}, client.InNamespace(claim.Namespace), client.MatchingFields{
		"involvedObject.kind": "PersistentVolumeClaim", "involvedObject.name": claim.Name, "reason": reasonProvisioning,
	})
	if err != nil {
		if ctx.Err() == nil {
			s.Log.Info("a refusal of the storage to clone would not be seen", "cause", err.Error())
		}
		return "", false
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", false
		case event, open := <-watcher.ResultChan():
			if !open {
				return "", ctx.Err() == nil
			}
			if event, ok := event.Object.(*corev1.Event); ok && refuses(event.Message) {
				return event.Message, false
			}
		}
	}
}
