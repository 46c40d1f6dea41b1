package dataimportcron

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
)

// errAsking says that a pod asks: its answer comes by its status.
var errAsking = errors.New("the pod has not answered yet")

const (
	containerPoll = "poll"
	kindPoll      = "image-poll" // of pods, by names.LabelPod
	maxPodName    = 63
	// pullPatience is how long a node may take to pull an image. It is the same that is imported, and may be large.
	pullPatience = 30 * time.Minute
)

// askByPod learns the digest of an image by a short-lived pod: of one that nodes pull as they get it, with their credentials and
// mirrors; of others with the Secrets that the template names. It returns errAsking while the pod has not told.
func (r *Reconciler) askByPod(ctx context.Context, s *scope) (string, error) {
	key := types.NamespacedName{Namespace: s.cron.Namespace, Name: pollName(s.cron.Name)}
	pod, err := get(ctx, r.Client, key, &corev1.Pod{})
	switch {
	case err != nil:
		return "", err
	case pod == nil:
		return "", r.createPoll(ctx, s)
	case !metav1.IsControlledBy(pod, s.cron):
		return "", r.endEarlier(ctx, s, pod)
	case pod.DeletionTimestamp != nil:
		return "", errAsking // of an earlier poll
	}
	answer, patience := answered, pullPatience
	if !datavolume.PulledByNode(s.cron.Spec.Template.Spec.Source) {
		if err := r.handProxy(ctx, pod); err != nil {
			return "", err
		}
		answer, patience = told, askPatience
	}
	digest, failed := answer(pod, r.now())
	if errors.Is(failed, errAsking) {
		s.sooner(patience - r.now().Sub(pod.CreationTimestamp.Time))
		return "", failed
	}
	log.FromContext(ctx).Info("Deleting the pod that asked for the image", "pod", pod.Name)
	if err := r.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return digest, failed
}

// createPoll begins to ask.
func (r *Reconciler) createPoll(ctx context.Context, s *scope) error {
	cdi, err := cdiconfig.Installed(ctx, r.Client)
	if err != nil {
		return err
	}
	workload := cdiconfig.WorkloadOf(cdi)
	pod := pollPod(s.cron, r.image, workload)
	if !datavolume.PulledByNode(s.cron.Spec.Template.Spec.Source) {
		if err := r.withSecrets(ctx, s.cron, pod); err != nil {
			return err
		}
		asking := &pod.Spec.Containers[0]
		asking.Args = append(asking.Args, workload.LogArgs()...)
	}
	log.FromContext(ctx).Info("Creating a pod that asks for the image", "pod", pod.Name)
	err = r.Create(ctx, pod, client.FieldOwner(manager))
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.meetPoll(ctx, s, client.ObjectKeyFromObject(pod))
	case err != nil:
		return fmt.Errorf("creating pod %s, which asks for the image: %w", pod.Name, err)
	}
	s.sooner(secretPatience)
	return errAsking
}

// meetPoll judges a pod of the name that the cache does not show: it lags behind, or the pod is somebody else's, which it never has.
func (r *Reconciler) meetPoll(ctx context.Context, s *scope, key types.NamespacedName) error {
	pod, err := get(ctx, r.live, key, &corev1.Pod{})
	switch {
	case err != nil:
		return err
	case pod != nil && !metav1.IsControlledBy(pod, s.cron):
		return r.endEarlier(ctx, s, pod)
	}
	s.sooner(busyRetry)
	return errAsking
}

// endEarlier deletes a pod that asked for a DataImportCron of before, which had the name, and waits for its end; one that is
// somebody else's is a failure.
func (r *Reconciler) endEarlier(ctx context.Context, s *scope, pod *corev1.Pod) error {
	by := metav1.GetControllerOf(pod)
	former := by == nil || by.Kind == "DataImportCron" && by.Name == s.cron.Name // none, where it was deleted as an orphan
	if !former || pod.Labels[names.LabelPod] != kindPoll || pod.Labels[LabelCron] != s.cron.Name {
		return fmt.Errorf("pod %s exists and is not of this DataImportCron; delete it", pod.Name)
	}
	if pod.DeletionTimestamp == nil {
		log.FromContext(ctx).Info("Deleting the pod that asked for the image of a DataImportCron before", "pod", pod.Name)
		if err := r.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
		}
	}
	s.sooner(goneRetry)
	return errAsking
}

// pollName is the name of the pod that asks for a DataImportCron's image.
func pollName(cron string) string {
	name := "poll-" + cron
	if len(name) <= maxPodName {
		return name
	}
	sum := sha256.Sum256([]byte(cron))
	return name[:maxPodName-9] + "-" + hex.EncodeToString(sum[:4])
}

// pollPod returns the pod that asks for the image of cron's template, on a node that workload allows: in that image for a moment, where
// nodes pull it, or else one to be told what to ask. Its program is of image.
func pollPod(cron *cdiv1.DataImportCron, image string, workload cdiconfig.Workload) *corev1.Pod {
	owner := metav1.OwnerReference{
		APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "DataImportCron", Name: cron.Name, UID: cron.UID, Controller: new(true),
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cron.Namespace, Name: pollName(cron.Name), OwnerReferences: []metav1.OwnerReference{owner},
			Labels: map[string]string{
				LabelCron: cron.Name, names.LabelPod: kindPoll, names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "storage",
			},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			// as the importer: the account's Secrets are for pulling, too
			ServiceAccountName: cron.Spec.Template.Spec.ServiceAccountName, PriorityClassName: cron.Spec.Template.Spec.PriorityClassName,
			SecurityContext:               datavolume.PodSecurity(),
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			ActiveDeadlineSeconds:         new(int64((pullPatience + time.Minute).Seconds())), // should nobody look at it any more
		},
	}
	container := corev1.Container{
		Name: containerPoll, Image: image, ImagePullPolicy: cmp.Or(workload.PullPolicy, corev1.PullIfNotPresent), Command: []string{"/slipway", "version"},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
		},
		SecurityContext: datavolume.ContainerSecurity(),
	}
	if source := cron.Spec.Template.Spec.Source; datavolume.PulledByNode(source) {
		datavolume.RunInImage(source.Registry, pod, &container)
		container.ImagePullPolicy = corev1.PullAlways // what the tag is now
	}
	pod.Spec.Containers = []corev1.Container{container}
	workload.Place(&pod.Spec)
	return pod
}

// answered returns the digest of the image that pod runs in, or why there will be none; errAsking while neither is known.
func answered(pod *corev1.Pod, now time.Time) (string, error) {
	for _, status := range pod.Status.ContainerStatuses {
		if status.ImageID != "" && status.State.Waiting == nil {
			return digestOfID(status.ImageID)
		}
	}
	return "", unanswered(pod, now, pullPatience, "no node has pulled the image")
}

// unanswered is why pod will not tell, errAsking while it may; late is what did not happen when patience is over.
func unanswered(pod *corev1.Pod, now time.Time, patience time.Duration, late string) error {
	waits := "no node was found for it yet"
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		switch waiting, ended := status.State.Waiting, status.State.Terminated; {
		case ended != nil && ended.ExitCode != 0:
			return fmt.Errorf("container %s of pod %s ended with code %d: %s", status.Name, pod.Name, ended.ExitCode, strings.TrimSpace(ended.Message))
		case waiting != nil && waiting.Message != "" && !awaitsSecret(pod, waiting, now):
			return fmt.Errorf("the node's kubelet says: %s: %s", waiting.Reason, waiting.Message)
		case waiting != nil:
			waits = waiting.Reason
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			waits = condition.Message
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodFailed:
		return fmt.Errorf("pod %s failed: %s", pod.Name, strings.TrimSpace(pod.Status.Reason+" "+pod.Status.Message))
	case now.Sub(pod.CreationTimestamp.Time) >= patience:
		return fmt.Errorf("%s within %s: %s", late, patience, waits)
	}
	return errAsking
}

// digestOfID reads the digest in what a kubelet calls an image: host/name@sha256:…, from a registry.
func digestOfID(id string) (string, error) {
	_, digest, found := strings.Cut(id, "@")
	digits, sha := strings.CutPrefix(digest, digestPrefix)
	if !found || !sha || len(digits) != hex.EncodedLen(sha256.Size) {
		return "", fmt.Errorf("the node has the image as %q, not by the digest of a registry: it was loaded by hand, or is built there; push it to a registry", id)
	}
	return digest, nil
}
