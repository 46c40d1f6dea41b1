package pod

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// Provisioner returns a short-lived pod with in.VMI's placement, requests and all its
// claims. Where claims wait for their first consumer, it is that consumer, so that they
// bind where the virtual machine can run and can be filled before it starts.
func Provisioner(in Input) (*corev1.Pod, error) {
	resources, err := computeResources(in)
	if err != nil {
		return nil, fmt.Errorf("building the provisioning pod of %s/%s: %w", in.VMI.Namespace, in.VMI.Name, err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      Name(in.VMI, KindProvisioner),
			Namespace: in.VMI.Namespace,
			Labels: map[string]string{
				names.LabelPod:        KindProvisioner,
				virtv1.CreatedByLabel: string(in.VMI.UID),
			},
			Annotations:     map[string]string{names.AnnotationTemp: "true"},
			OwnerReferences: ownedBy(in.VMI),
		},
		Spec: placement(in),
	}
	mergeNodeSelector(&pod.Spec, map[string]string{virtv1.NodeSchedulable: "true"})
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	container := corev1.Container{
		Name:            "provision",
		Image:           in.ProvisionerImage,
		ImagePullPolicy: in.PullPolicy,
		Command:         []string{"/slipway", "version"},
		Resources:       resources,
		SecurityContext: containerSecurity(),
	}
	for _, volume := range in.VMI.Spec.Volumes {
		claim, ok := in.Claims[volume.Name]
		if !ok {
			continue
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, claimVolume(volume.Name, claim))
		if claim.Block {
			container.VolumeDevices = append(container.VolumeDevices,
				corev1.VolumeDevice{Name: podVolume(volume.Name), DevicePath: path.Join(names.LauncherBlockDir, volume.Name)})
			continue
		}
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: podVolume(volume.Name), MountPath: path.Join(names.LauncherDisksDir, volume.Name)})
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, stateVolumes(in)...)
	container.VolumeMounts = append(container.VolumeMounts, stateMounts(in)...)
	pod.Spec.Containers = []corev1.Container{container}
	return pod, nil
}
