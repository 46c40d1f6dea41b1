// Package taskpod fits the pods of provisioning tasks to the claim whose disk they work on. A
// Tekton Task is the same for all claims, and what differs is the pod's: a Block claim is a
// device and no mount, the disk belongs to QEMU's group, and KVM is asked for where there is one.
package taskpod

import (
	"fmt"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/taskdisk"
)

// Facts are what the cluster says about a task's pod.
type Facts struct {
	// Block says that the claim is a block device.
	Block bool
	// KVM says that every node where the pod may land offers KVM.
	KVM bool
}

// Claim returns the name of the claim whose disk the pod works on.
func Claim(pod *corev1.Pod) (string, bool) {
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == taskdisk.Volume && volume.PersistentVolumeClaim != nil {
			return volume.PersistentVolumeClaim.ClaimName, true
		}
	}
	return "", false
}

// Fit returns the changes that make the pod fit its claim; none when it does.
func Fit(pod *corev1.Pod, facts Facts) []jsonpatch.JsonPatchOperation {
	var patch []jsonpatch.JsonPatchOperation
	for kind, containers := range map[string][]corev1.Container{"initContainers": pod.Spec.InitContainers, "containers": pod.Spec.Containers} {
		for i := range containers {
			path := fmt.Sprintf("/spec/%s/%d", kind, i)
			if facts.Block {
				patch = append(patch, device(&containers[i], path)...)
			}
			if facts.KVM && needsKVM(&containers[i]) {
				patch = append(patch, askKVM(&containers[i], path)...)
			}
		}
	}
	return append(patch, group(pod)...)
}

// device turns the mount of the claim into a device.
func device(container *corev1.Container, path string) []jsonpatch.JsonPatchOperation {
	isClaim := func(m corev1.VolumeMount) bool { return m.Name == taskdisk.Volume }
	if !slices.ContainsFunc(container.VolumeMounts, isClaim) {
		return nil
	}
	mounts := slices.DeleteFunc(slices.Clone(container.VolumeMounts), isClaim)
	devices := append(slices.Clone(container.VolumeDevices), corev1.VolumeDevice{Name: taskdisk.Volume, DevicePath: taskdisk.Device})
	return []jsonpatch.JsonPatchOperation{
		jsonpatch.NewOperation("replace", path+"/volumeMounts", mounts),
		jsonpatch.NewOperation("add", path+"/volumeDevices", devices),
	}
}

// group gives the disk to QEMU's group, unless the run or the cluster chose another.
func group(pod *corev1.Pod) []jsonpatch.JsonPatchOperation {
	switch {
	case pod.Spec.SecurityContext == nil:
		return []jsonpatch.JsonPatchOperation{jsonpatch.NewOperation("add", "/spec/securityContext", map[string]any{"fsGroup": names.QEMUUser})}
	case pod.Spec.SecurityContext.FSGroup == nil:
		return []jsonpatch.JsonPatchOperation{jsonpatch.NewOperation("add", "/spec/securityContext/fsGroup", names.QEMUUser)}
	}
	return nil
}

// needsKVM says whether the container boots libguestfs' appliance, which only these tasks do.
func needsKVM(container *corev1.Container) bool {
	return strings.HasPrefix(container.Name, "step-disk-virt-")
}

// askKVM asks for the node's KVM, unless the run does.
func askKVM(container *corev1.Container, path string) []jsonpatch.JsonPatchOperation {
	if _, asked := container.Resources.Limits[names.DeviceKVM]; asked {
		return nil
	}
	var patch []jsonpatch.JsonPatchOperation
	for field, list := range map[string]corev1.ResourceList{"limits": container.Resources.Limits, "requests": container.Resources.Requests} {
		at := path + "/resources/" + field
		if list == nil {
			patch = append(patch, jsonpatch.NewOperation("add", at, map[string]any{names.DeviceKVM: "1"}))
			continue
		}
		patch = append(patch, jsonpatch.NewOperation("add", at+"/"+strings.ReplaceAll(names.DeviceKVM, "/", "~1"), "1"))
	}
	return patch
}

// OfferKVM says whether every node that takes pods offers KVM.
func OfferKVM(nodes []corev1.Node) bool {
	offers := false
	for i := range nodes {
		if closed(&nodes[i]) {
			continue
		}
		if count := nodes[i].Status.Allocatable[names.DeviceKVM]; count.Sign() <= 0 {
			return false
		}
		offers = true
	}
	return offers
}

// closed says whether the node takes no pods that do not tolerate it.
func closed(node *corev1.Node) bool {
	return node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	})
}
