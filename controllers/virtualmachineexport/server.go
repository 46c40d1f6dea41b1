package virtualmachineexport

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// readPod reads the export server's pod.
func (r *Reconciler) readPod(ctx context.Context, s *scope) error {
	pod := &corev1.Pod{}
	found, err := r.get(ctx, s.key(s.serverName()), pod)
	switch {
	case err != nil || !found:
		return err
	case !metav1.IsControlledBy(pod, s.export):
		return fail("pod %s exists and is not the export's; delete it, or name the export otherwise", pod.Name)
	}
	s.pod = pod
	return nil
}

// endServer deletes a server whose volumes may change beneath it, and one that failed, to make it anew.
func (r *Reconciler) endServer(ctx context.Context, s *scope) error {
	if s.pod == nil || s.pod.DeletionTimestamp != nil {
		return nil
	}
	failed := s.pod.Status.Phase == corev1.PodFailed
	switch {
	case s.lack != nil:
		r.event(s, corev1.EventTypeNormal, eventPaused, "Ending the export server: %s", s.lack.message)
	case failed:
		r.event(s, corev1.EventTypeWarning, eventPodEnded, "Exporter pod %s is in phase Failed: %s", s.pod.Name, s.pod.Status.Message)
	default:
		return nil
	}
	log.FromContext(ctx).Info("Deleting the export server", "pod", s.pod.Name, "phase", s.pod.Status.Phase)
	if err := r.Delete(ctx, s.pod, client.Preconditions{UID: &s.pod.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s: %w", client.ObjectKeyFromObject(s.pod), err)
	}
	s.pod.DeletionTimestamp = new(metav1.NewTime(s.now))
	return nil
}

// makeToken makes a token when the user has not named one. Its Secret is named by the export's uid, so that
// one of that name has it.
func (r *Reconciler) makeToken(ctx context.Context, s *scope) error {
	if s.lack != nil || s.pod != nil || ptr.Deref(s.export.Spec.TokenSecretRef, "") != "" {
		return nil
	}
	data := map[string][]byte{vmexport.KeyToken: []byte(strings.ToLower(rand.Text()))}
	return r.create(ctx, buildSecret(s.export, tokenSecret(s.export), data))
}

// makeService makes the Service that leads to the server.
func (r *Reconciler) makeService(ctx context.Context, s *scope) error {
	if s.lack != nil {
		return nil
	}
	service := &corev1.Service{}
	found, err := r.get(ctx, s.key(s.serverName()), service)
	switch {
	case err != nil:
		return err
	case !found:
		return r.create(ctx, buildService(s.export))
	case !metav1.IsControlledBy(service, s.export):
		return fail("Service %s exists and is not the export's; delete it, or name the export otherwise", service.Name)
	}
	return nil
}

// makeServer makes the server, with a certificate by an authority of its own that signs nothing else.
func (r *Reconciler) makeServer(ctx context.Context, s *scope) error {
	if s.lack != nil || s.pod != nil {
		return nil
	}
	host := vmexport.Host(s.export.Namespace, s.export.Name)
	issued, err := certs.Alone([]string{host}, vmexport.Expiry(s.export).Add(margin).Sub(s.now), s.now)
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", host, err)
	}
	data := certificateData(issued)
	if s.vm != nil {
		in := manifestInput{Export: s.export, VM: s.vm, Volumes: s.volumes, Authority: string(issued.Bundle)}
		if data[vmexport.KeyManifest], err = encodeManifest(in); err != nil {
			return err
		}
	}
	secret := s.serverName() + "-" + strings.ToLower(rand.Text()[:8])
	if err := r.create(ctx, buildSecret(s.export, secret, data)); err != nil {
		return err
	}
	pod := buildPod(podInput{
		Export: s.export, Volumes: s.volumes, Image: r.options.Image, Certificate: secret, Authority: string(issued.Bundle), Defined: s.vm != nil,
	})
	log.FromContext(ctx).Info("Creating the export server", "pod", pod.Name)
	if err := r.create(ctx, pod); err != nil {
		return err
	}
	r.event(s, corev1.EventTypeNormal, eventPodCreated, "Created exporter pod %s/%s", pod.Namespace, pod.Name)
	pod.Status.Phase = corev1.PodPending
	s.pod = pod
	return nil
}

// create creates object, unless it is there.
func (r *Reconciler) create(ctx context.Context, object client.Object) error {
	err := r.Create(ctx, object, client.FieldOwner(names.ManagerController))
	switch {
	case namespace.Ending(err):
		return steps.ErrDone // the export goes too
	case apierrors.IsForbidden(err): // a quota, or Pod Security
		return fail("creating %s: %v", object.GetName(), err)
	case client.IgnoreAlreadyExists(err) != nil:
		return fmt.Errorf("creating %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

func (r *Reconciler) event(s *scope, kind, reason, format string, args ...any) {
	r.events.Eventf(s.export, nil, kind, reason, "Reconcile", format, args...)
}
