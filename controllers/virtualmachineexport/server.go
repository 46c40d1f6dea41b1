package virtualmachineexport

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/kubevirtconfig"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
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
		return s.notOurs("pod", pod)
	}
	s.pod = pod
	return nil
}

// endServer deletes a server whose volumes may change beneath it, or are others now, and one that failed a while ago, to
// make it anew.
func (r *Reconciler) endServer(ctx context.Context, s *scope) error {
	if s.pod == nil || s.pod.DeletionTimestamp != nil {
		return nil
	}
	switch {
	case s.lack != nil:
		r.event(s, corev1.EventTypeNormal, eventPaused, "Ending the export server: %s", s.lack.message)
	case hasFailed(s.pod) && s.now.Before(failedAt(s.pod).Add(pause)):
		return nil
	case hasFailed(s.pod):
		r.event(s, corev1.EventTypeWarning, eventPodEnded, "Exporter pod %s is in phase Failed: %s", s.pod.Name, s.pod.Status.Message)
	case s.pod.Status.Phase != corev1.PodSucceeded && s.pod.Annotations[annotationVolumes] != digest(s.volumes):
		r.event(s, corev1.EventTypeNormal, eventPaused, "Ending the export server: there are other volumes to export than it has")
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

func hasFailed(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == corev1.PodFailed }

// failedAt is when a pod failed, as far as it tells.
func failedAt(pod *corev1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	for _, condition := range pod.Status.Conditions {
		if changed := condition.LastTransitionTime; changed.After(at) {
			at = changed.Time
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		if ended := container.State.Terminated; ended != nil && ended.FinishedAt.After(at) {
			at = ended.FinishedAt.Time
		}
	}
	return at
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

// makeServer makes the server.
func (r *Reconciler) makeServer(ctx context.Context, s *scope) error {
	if s.lack != nil || s.pod != nil {
		return nil
	}
	definition, err := r.makeDefinition(ctx, s)
	if err != nil {
		return err
	}
	kubevirt, err := r.readKubeVirt(ctx)
	if err != nil {
		return err
	}
	pod := buildPod(podInput{
		Export: s.export, Volumes: s.volumes, Image: r.options.Image, Known: s.known, Definition: definition,
		TLS: tlspolicy.OfKubeVirt(kubevirt.Spec.Configuration.TLSConfiguration), PullSecrets: kubevirt.Spec.ImagePullSecrets,
		Resources: kubevirtconfig.ContainerResources(kubevirt, virtv1.VMExport),
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

// readKubeVirt reads the KubeVirt object, which says how servers speak TLS, what they may use and by which Secrets their image is pulled; an empty one where there is none.
func (r *Reconciler) readKubeVirt(ctx context.Context) (*virtv1.KubeVirt, error) {
	list := &virtv1.KubeVirtList{}
	if err := r.List(ctx, list); err != nil {
		return nil, fmt.Errorf("reading the KubeVirt object: %w", err)
	}
	if len(list.Items) == 0 {
		return &virtv1.KubeVirt{}, nil
	}
	return &list.Items[0], nil
}

// makeDefinition makes the Secret with the definition of the VM as it is now, and returns its name, "" where there is
// no VM. It is named by what is in it, so that a server that is tried again has the same.
func (r *Reconciler) makeDefinition(ctx context.Context, s *scope) (string, error) {
	if s.vm == nil {
		return "", nil
	}
	vm := s.vm.DeepCopy()
	if err := (instancetype.Resolver{Reader: r.live}).Expand(ctx, vm); err != nil {
		if why := apierrors.ReasonForError(err); why != metav1.StatusReasonUnknown && why != metav1.StatusReasonNotFound {
			return "", fmt.Errorf("reading what VirtualMachine %s is made of: %w", vm.Name, err) // which passes
		}
		// It is named then, and need not be here: the definition is applied elsewhere.
		log.FromContext(ctx).Info("The definition names the instance type and the preference, instead of having what they say", "reason", err.Error())
		vm = s.vm.DeepCopy()
		forgetRevisions(&vm.Spec)
	}
	data, err := encodeManifest(manifestInput{Export: s.export, VM: vm, Volumes: s.volumes, Authority: s.known.Authority})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(s.export.UID), data...))
	name := s.serverName() + "-" + hex.EncodeToString(sum[:8])
	return name, r.create(ctx, buildSecret(s.export, name, map[string][]byte{vmexport.KeyManifest: data}))
}

// forgetRevisions drops the revisions of instance type and preference, which are of this cluster.
func forgetRevisions(spec *virtv1.VirtualMachineSpec) {
	if spec.Instancetype != nil {
		spec.Instancetype.RevisionName = ""
	}
	if spec.Preference != nil {
		spec.Preference.RevisionName = ""
	}
}

// create creates object, unless it is there.
func (r *Reconciler) create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	err := r.Create(ctx, object, append(options, client.FieldOwner(names.ManagerController))...)
	switch {
	case namespace.Ending(err):
		return steps.ErrDone // the export goes too
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err): // a quota, or Pod Security; a definition that is too long
		return fail("creating %s: %v", object.GetName(), err)
	case client.IgnoreAlreadyExists(err) != nil:
		return fmt.Errorf("creating %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

func (r *Reconciler) event(s *scope, kind, reason, format string, args ...any) {
	r.events.Eventf(s.export, nil, kind, reason, "Reconcile", format, args...)
}
