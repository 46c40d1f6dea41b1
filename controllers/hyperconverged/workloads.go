package hyperconverged

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
)

// maxReason bounds what a condition quotes of a container's message, in bytes.
const maxReason = 300

// podLabel names the component in the labels of its pods.
const podLabel = "kubevirt.io"

// workload is how far one Deployment or DaemonSet is.
type workload struct {
	Name string
	// Missing says what it lacks, in words for people; empty when it is ready.
	Missing string
	// Failing says that it will not get ready by waiting.
	Failing bool
}

// observe reads how far the wanted Deployments and DaemonSets are.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(r.Options.Namespace), client.HasLabels{podLabel}); err != nil {
		return fmt.Errorf("listing the components' pods: %w", err)
	}
	for _, object := range s.wanted {
		if !render.HasPods(object) {
			continue
		}
		key := client.ObjectKeyFromObject(object)
		var seen workload
		var err error
		if object.GetKind() == "Deployment" {
			deployment := &appsv1.Deployment{}
			err = r.Client.Get(ctx, key, deployment)
			seen = ofDeployment(deployment)
		} else {
			daemons := &appsv1.DaemonSet{}
			err = r.Client.Get(ctx, key, daemons)
			seen = ofDaemonSet(daemons)
		}
		if apierrors.IsNotFound(err) {
			seen = workload{Missing: "not created yet"}
		} else if err != nil {
			return fmt.Errorf("reading %s %s: %w", object.GetKind(), key, err)
		}
		seen.Name = object.GetName()
		if seen.Missing != "" {
			seen = explain(seen, pods.Items)
		}
		s.workloads = append(s.workloads, seen)
	}
	return nil
}

func ofDeployment(d *appsv1.Deployment) workload {
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	switch {
	case d.Status.ObservedGeneration < d.Generation:
		return workload{Missing: "rollout not started"}
	case d.Status.UpdatedReplicas < wanted:
		return workload{Missing: fmt.Sprintf("%d of %d pods are of the wanted version", d.Status.UpdatedReplicas, wanted)}
	case d.Status.Replicas > d.Status.UpdatedReplicas: // which may be the ones that are available
		return workload{Missing: fmt.Sprintf("%d of %d pods are of a former version yet", d.Status.Replicas-d.Status.UpdatedReplicas, d.Status.Replicas)}
	case d.Status.AvailableReplicas < wanted:
		return workload{Missing: fmt.Sprintf("%d of %d pods are available", d.Status.AvailableReplicas, wanted)}
	}
	return workload{}
}

func ofDaemonSet(d *appsv1.DaemonSet) workload {
	wanted := d.Status.DesiredNumberScheduled
	switch {
	case d.Status.ObservedGeneration < d.Generation:
		return workload{Missing: "rollout not started"}
	case wanted == 0:
		return workload{Missing: "no node is selected; look at spec.workloads.nodePlacement of KubeVirt, which spec.deployment.nodePlacements.workload of HyperConverged sets, and at the nodes' taints"}
	case d.Status.UpdatedNumberScheduled < wanted:
		return workload{Missing: fmt.Sprintf("%d of %d nodes run the wanted version", d.Status.UpdatedNumberScheduled, wanted)}
	case d.Status.NumberAvailable < wanted:
		return workload{Missing: fmt.Sprintf("available on %d of %d nodes", d.Status.NumberAvailable, wanted)}
	}
	return workload{}
}

// explain adds to w what its pods say of why they are not ready.
func explain(w workload, pods []corev1.Pod) workload {
	for i := range pods {
		if pods[i].Labels[podLabel] != w.Name || pods[i].DeletionTimestamp != nil {
			continue
		}
		if reason, failing := trouble(&pods[i]); reason != "" {
			w.Missing += fmt.Sprintf(" (pod %s: %s)", pods[i].Name, reason)
			w.Failing = w.Failing || failing
			return w
		}
	}
	return w
}

// failingReasons are reasons of waiting containers that waiting does not cure.
var failingReasons = map[string]bool{
	"CrashLoopBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true,
	"CreateContainerConfigError": true, "CreateContainerError": true,
}

// trouble says why a pod is not ready and whether waiting is of no use.
func trouble(pod *corev1.Pod) (string, bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message, false
		}
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" {
			if waiting.Reason == "ErrImagePull" || waiting.Reason == "ImagePullBackOff" {
				// The two alternate, and the runtime's words change; what is wrong does not.
				return "image " + status.Image + " cannot be pulled", true
			}
			text := waiting.Reason
			if last := status.LastTerminationState.Terminated; last != nil {
				text += fmt.Sprintf(", last exit code %d %s", last.ExitCode, oneLine(last.Message))
			} else if waiting.Message != "" {
				text += ": " + oneLine(waiting.Message)
			}
			return strings.TrimSpace(text), failingReasons[waiting.Reason]
		}
	}
	return "", false
}

// oneLine keeps the last line of a container's message, where Go programs say why they ended.
func oneLine(message string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	last := lines[len(lines)-1]
	if len(last) > maxReason {
		last = last[:maxReason] + "…"
	}
	return last
}
