package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/names"
)

// Rule are the API verbs that Users and its callers need.
var Rule = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}

// endBound is how long the pod of a VM that is being stopped may take beyond its grace period.
const endBound = time.Minute

// launchers have this label: pods that hold a VM, and those that hold disks plugged in later.
var launchers = client.HasLabels{virtv1.AppLabel}

// Users returns the pods of VMs that use the claim and have not ended.
func Users(ctx context.Context, c client.Reader, key client.ObjectKey) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(key.Namespace), launchers); err != nil {
		return nil, fmt.Errorf("looking for VMs that use claim %s: %w", key, err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return ended(&pod) || !uses(&pod, key.Name) }), nil
}

func uses(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// vmOf names the VM that the pod holds.
func vmOf(pod *corev1.Pod) string {
	for _, name := range []string{pod.Annotations[virtv1.DomainAnnotation], pod.Labels[names.LabelVMName]} {
		if name != "" {
			return "VirtualMachine " + name
		}
	}
	return "pod " + pod.Name
}

// Free fails at once when a VM uses the claim. A VM that is being stopped is waited for. Where
// the task may not list pods, or c is nil, that is said in the log and nothing is known.
func Free(ctx context.Context, c client.WithWatch, log *slog.Logger, key client.ObjectKey) error {
	const blind = "not looking for VMs that use the claim: the ServiceAccount may not list pods; run the task as its own"
	if c == nil {
		log.Warn(blind, "claim", key.Name)
		return nil
	}
	pods, err := Users(ctx, c, key)
	if apierrors.IsForbidden(err) {
		log.Warn(blind, "claim", key.Name)
		return nil
	}
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			return fmt.Errorf("claim %s is in use by %s: stop it first", key.Name, vmOf(&pod))
		}
	}
	for _, pod := range pods {
		bounded, stop := context.WithDeadline(ctx, pod.DeletionTimestamp.Add(endBound))
		err := gone(bounded, c, log, key, &pod)
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// Await waits until no VM uses the claim, or ctx ends.
func Await(ctx context.Context, c client.WithWatch, log *slog.Logger, key client.ObjectKey) error {
	for {
		pods, err := Users(ctx, c, key)
		if err != nil || len(pods) == 0 {
			return err
		}
		if err := gone(ctx, c, log, key, &pods[0]); err != nil {
			return err
		}
	}
}

// gone waits until the pod has ended.
func gone(ctx context.Context, c client.WithWatch, log *slog.Logger, key client.ObjectKey, pod *corev1.Pod) error {
	log.Info("waiting for the claim", "claim", key.Name, "usedBy", vmOf(pod))
	err := await.Object(ctx, c, &corev1.PodList{}, client.ObjectKeyFromObject(pod), func(now *corev1.Pod, exists bool) (bool, error) {
		return !exists || now.UID != pod.UID || ended(now), nil
	})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("claim %s is still in use by %s: stop it first: %w", key.Name, vmOf(pod), ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("waiting until %s does not use claim %s any more: %w", vmOf(pod), key.Name, err)
	}
	return nil
}
