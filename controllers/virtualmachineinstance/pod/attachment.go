package pod

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// Attachment returns the pod that holds the claim of a volume that came after the launcher
// pod, on the node of that. The kubelet adds no volume to a running pod, and a claim that
// no pod uses could be deleted, or mounted elsewhere, under the guest. The pod's one
// process does nothing but tell virt-handler that the volume is there.
func Attachment(in Input, node, volume string, claim Claim) *corev1.Pod {
	pod := holder(in, node, volume, claim)
	pod.Labels[virtv1.AppLabel] = names.AppAttachment
	pod.Labels[names.LabelPod] = KindAttachment
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.Volumes = append(pod.Spec.Volumes, emptyDir(names.VolumeSockets))
	container := &pod.Spec.Containers[0]
	container.Image = in.LauncherImage
	container.Command = []string{"/usr/bin/" + containerDiskBinary}
	container.Args = []string{"--hold", "--volume", volume}
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: names.VolumeSockets, MountPath: names.LauncherSocketDir})
	return pod
}

// AttachmentTrigger returns a short-lived pod that is the first consumer of a claim that
// waits for one before it is filled; only then may the guest have it.
func AttachmentTrigger(in Input, node, volume string, claim Claim) *corev1.Pod {
	pod := holder(in, node, volume, claim)
	pod.Labels[names.LabelPod] = KindAttachmentTrigger
	pod.Annotations[names.AnnotationTemp] = "true"
	container := &pod.Spec.Containers[0]
	container.Image = in.ProvisionerImage
	container.Command = []string{"/slipway", "version"}
	return pod
}

// holder is what both have: the claim, and the node of the guest, which they tolerate
// whatever befalls it, for the guest is there already.
func holder(in Input, node, volume string, claim Claim) *corev1.Pod {
	spec := placement(in)
	spec.NodeSelector, spec.TopologySpreadConstraints = nil, nil
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}}
	spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	spec.Volumes = []corev1.Volume{claimVolume(volume, claim)}
	spec.Containers = []corev1.Container{{
		Name:            names.AppAttachment,
		ImagePullPolicy: in.PullPolicy,
		Resources:       in.AttachmentResources,
		SecurityContext: containerSecurity(),
	}}
	if container := &spec.Containers[0]; claim.Block {
		container.VolumeDevices = []corev1.VolumeDevice{{Name: podVolume(volume), DevicePath: path.Join(names.LauncherBlockDir, volume)}}
	} else {
		container.VolumeMounts = []corev1.VolumeMount{{
			Name: podVolume(volume), MountPath: path.Join(names.LauncherDisksDir, volume), ReadOnly: claim.ReadOnly,
		}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "hp-volume-" + in.VMI.Name + "-",
			Namespace:    in.VMI.Namespace,
			Labels:       map[string]string{},
			Annotations: map[string]string{
				virtv1.DomainAnnotation: in.VMI.Name,
				names.AnnotationVolume:  volume,
			},
			OwnerReferences: ownedBy(in.VMI),
		},
		Spec: spec,
	}
}

// Mounts says whether pod has claim as the VMI's volume.
func Mounts(pod *corev1.Pod, volume, claim string) bool {
	for _, one := range pod.Spec.Volumes {
		if one.Name == podVolume(volume) {
			return one.PersistentVolumeClaim != nil && one.PersistentVolumeClaim.ClaimName == claim
		}
	}
	return false
}
