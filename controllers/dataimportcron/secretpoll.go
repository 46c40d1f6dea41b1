package dataimportcron

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/transfer"
)

const (
	// secretPatience is how long a pod may want for a Secret that is made right after it.
	secretPatience = time.Minute
	// askPatience is how long a pod may take that only asks. It does not begin while a Secret that the template names is missing.
	askPatience = 5 * time.Minute
)

// namesSecrets reports whether Secrets let in to source, which a pod of its namespace reads and virt-controller does not.
func namesSecrets(source *cdiv1.DataVolumeSource) bool {
	switch {
	case source == nil:
		return false
	case source.HTTP != nil:
		return source.HTTP.Checksum == "" && (source.HTTP.SecretRef != "" || len(source.HTTP.SecretExtraHeaders) > 0)
	}
	return source.Registry != nil && ptr.Deref(source.Registry.SecretRef, "") != "" && !datavolume.PulledByNode(source)
}

// withSecrets makes of pod one that asks cron's source as an import would, with the Secrets of its template.
func (r *Reconciler) withSecrets(ctx context.Context, cron *cdiv1.DataImportCron, pod *corev1.Pod) error {
	template := &cdiv1.DataVolume{Spec: cron.Spec.Template.Spec}
	template.Namespace, template.Annotations = cron.Namespace, cron.Spec.Template.Annotations
	var by datavolume.Ways
	if from := template.Spec.Source.Registry; from != nil {
		settings, err := r.registries(ctx)
		if err != nil {
			return err
		}
		named, err := nameOf(*from.URL)
		if err != nil {
			return err
		}
		if by.Places, err = settings.Places(named); err != nil {
			return fmt.Errorf("looking for a registry of the image: %w", err)
		}
	}
	var err error
	if by.Proxy, err = r.proxy(ctx); err != nil {
		return err
	}
	datavolume.AskSource(template, by, cron.Annotations[AnnotationDesired] != "", pod, &pod.Spec.Containers[0])
	return nil
}

// proxy says how servers are reached; an error says also what is wrong with that.
func (r *Reconciler) proxy(ctx context.Context) (cdiconfig.ImportProxy, error) {
	set, err := cdiconfig.Proxy(ctx, r.Client, r.live, r.namespace)
	return set, errors.Join(err, set.Fault)
}

// handProxy makes the Secret that pod waits for, if any. It is the pod's own, and goes with it.
func (r *Reconciler) handProxy(ctx context.Context, pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" {
		return nil
	}
	set, err := r.proxy(ctx)
	if err != nil {
		return err
	}
	secret := datavolume.ProxySecret(pod, set)
	if secret == nil {
		return nil
	}
	if err := r.Create(ctx, secret, client.FieldOwner(manager)); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("creating Secret %s, with the proxy by which pod %s reaches its source: %w", secret.Name, pod.Name, err)
	}
	return nil
}

// told returns the version that pod has learned, or why there will be none; errAsking while neither is known.
func told(pod *corev1.Pod, now time.Time) (string, error) {
	for _, status := range pod.Status.ContainerStatuses {
		ended := status.State.Terminated
		if ended == nil {
			continue
		}
		result, err := transfer.Decode(ended.Message)
		switch {
		case err != nil || ended.ExitCode != 0 && result.Reason == "":
			return "", fmt.Errorf("pod %s ended with code %d (%s) and did not say why", pod.Name, ended.ExitCode, ended.Reason)
		case result.Reason != "":
			return "", fmt.Errorf("%s: %s", result.Reason, strings.TrimSpace(result.Message))
		case !isWhole(result.Digest):
			return "", fmt.Errorf("pod %s answers with the digest %q; it must be %s and hexadecimal digits", pod.Name, result.Digest, digestPrefix)
		}
		return result.Digest, nil
	}
	return "", unanswered(pod, now, askPatience,
		fmt.Sprintf("pod %s, which asks the source, has not answered (where it does not begin, a Secret or ConfigMap that the template names may be missing: see its events)", pod.Name))
}

// awaitsSecret reports whether pod waits for the Secret that is made right after it.
func awaitsSecret(pod *corev1.Pod, waiting *corev1.ContainerStateWaiting, now time.Time) bool {
	return waiting.Reason == "CreateContainerConfigError" && datavolume.AwaitsProxy(pod) &&
		now.Sub(pod.CreationTimestamp.Time) < secretPatience
}
