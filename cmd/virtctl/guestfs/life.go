package guestfs

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/population"
)

const (
	// boundStart is how long the pod may take until it runs: its image is pulled meanwhile.
	boundStart = 500 * time.Second
	// boundEnd is how long it may take to be told of an end, or of the wish to delete.
	boundEnd = 30 * time.Second
)

// userOf names what uses a claim, "" when nothing does: a pod, or a VM that was given it while it ran.
func userOf(ctx context.Context, c client.Client, claim *corev1.PersistentVolumeClaim) (string, error) {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(claim.Namespace)); err != nil {
		return "", fmt.Errorf("looking for pods that use the claim %s: %w", claim.Name, err)
	}
	if user := population.Consumer(pods.Items, claim, ""); user != "" {
		return user, nil
	}
	vmis := &virtv1.VirtualMachineInstanceList{}
	if err := c.List(ctx, vmis, client.InNamespace(claim.Namespace)); err != nil {
		return "", fmt.Errorf("looking for VMs that use the claim %s: %w", claim.Name, err)
	}
	for i := range vmis.Items {
		vmi := &vmis.Items[i]
		for _, volume := range vmi.Spec.Volumes {
			if !vmi.IsFinal() && claimOf(volume.VolumeSource) == claim.Name {
				return "that of the VM " + vmi.Name, nil
			}
		}
	}
	return "", nil
}

// claimOf names the claim that a volume of a VM is on, "" for a volume that is on none.
func claimOf(source virtv1.VolumeSource) string {
	switch {
	case source.PersistentVolumeClaim != nil:
		return source.PersistentVolumeClaim.ClaimName
	case source.DataVolume != nil:
		return source.DataVolume.Name
	case source.Ephemeral != nil && source.Ephemeral.PersistentVolumeClaim != nil:
		return source.Ephemeral.PersistentVolumeClaim.ClaimName
	case source.MemoryDump != nil:
		return source.MemoryDump.ClaimName
	}
	return ""
}

// awaitRunning waits until the pod runs, and tells what that waits for.
func awaitRunning(ctx context.Context, c client.WithWatch, pod *corev1.Pod, say io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, boundStart)
	defer cancel()
	told := ""
	return follow(ctx, c, pod, func(now *corev1.Pod, exists bool) (bool, error) {
		switch {
		case !exists:
			return false, fmt.Errorf("the pod %s was deleted", pod.Name)
		case now.Status.Phase == corev1.PodRunning:
			return true, nil
		case now.Status.Phase == corev1.PodSucceeded, now.Status.Phase == corev1.PodFailed:
			return false, fmt.Errorf("Pod is not in running state but got %s: %s", now.Status.Phase, now.Status.Message) //nolint:revive,staticcheck // the field's own words
		}
		if text := waitsFor(now); text != told {
			told = text
			fmt.Fprintln(say, text)
		}
		return false, nil
	})
}

// waitsFor is why the pod does not run yet.
func waitsFor(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			return fmt.Sprintf("Waiting for container %s still in pending, reason: %s, message: %s", status.Name, waiting.Reason, waiting.Message)
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return fmt.Sprintf("Waiting for a node, reason: %s, message: %s", condition.Reason, condition.Message)
		}
	}
	return "Waiting for pod " + pod.Name
}

// awaitEnd waits until the script has ended, and fails where that did.
func awaitEnd(ctx context.Context, c client.WithWatch, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, boundEnd)
	defer cancel()
	return follow(ctx, c, pod, func(now *corev1.Pod, exists bool) (bool, error) {
		switch {
		case !exists:
			return false, fmt.Errorf("the pod %s was deleted", pod.Name)
		case now.Status.Phase == corev1.PodFailed:
			return false, fmt.Errorf("the script ended with %s", codeOf(now))
		}
		return now.Status.Phase == corev1.PodSucceeded, nil
	})
}

// codeOf is what the pod's program ended with.
func codeOf(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			return fmt.Sprintf("code %d", ended.ExitCode)
		}
	}
	return pod.Status.Reason + ": " + pod.Status.Message
}

func follow(ctx context.Context, c client.WithWatch, pod *corev1.Pod, check await.Check[*corev1.Pod]) error {
	return await.Object(ctx, c, &corev1.PodList{}, client.ObjectKeyFromObject(pod), check) //nolint:wrapcheck // it says what it waited for
}

// remove deletes the pod, also when ctx has ended.
func remove(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), boundEnd)
	defer cancel()
	if err := c.Delete(ctx, pod); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the pod %s, which still has the claim: %w", pod.Name, err)
	}
	return nil
}
