package guestfs

import (
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// What the pods are made of, as those of KubeVirt's virtctl: the images of both know it.
const (
	prefix        = "libguestfs-tools-"
	containerName = "libguestfs"
	entrypoint    = "/entrypoint.sh" // starts a shell
	applianceDir  = "/usr/local/lib/guestfs/appliance"
	homeDir       = "/home/guestfs"
	temporaryDir  = "/tmp/guestfs"
	diskDir       = "/disk"
	diskDevice    = "/dev/vda"
	volumeDisk    = "volume"
	volumeHome    = "guestfs"
	volumeTemp    = "libguestfs-tmp-dir"
)

// identity is whom the pod runs as; nil leaves it to the image.
type identity struct {
	user, group, files *int64
}

// identity reads the flags about it.
func (o *options) identity() (identity, error) {
	if o.root {
		for flag, text := range map[string]string{"uid": o.uid, "gid id": o.gid, "fsGroup id": o.fsGroup} {
			if text != "" {
				return identity{}, fmt.Errorf("cannot set %s with root", flag)
			}
		}
		return identity{user: new(int64), group: new(int64), files: new(int64)}, nil
	}
	if o.gid != "" && o.uid == "" {
		return identity{}, errors.New("gid requires the uid to be set")
	}
	var ids identity
	for _, id := range []struct {
		flag, text string
		into       **int64
	}{{"uid", o.uid, &ids.user}, {"gid", o.gid, &ids.group}, {"fsGroup", o.fsGroup, &ids.files}} {
		if id.text == "" {
			continue
		}
		number, err := strconv.ParseInt(id.text, 10, 64)
		if err != nil {
			return identity{}, fmt.Errorf("--%s: %q is no number", id.flag, id.text)
		}
		*id.into = &number
	}
	return ids, nil
}

// checkPolicy says whether there is such a pull policy.
func (o *options) checkPolicy() error {
	switch corev1.PullPolicy(o.pullPolicy) {
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
		return nil
	}
	return fmt.Errorf("invalid pull policy: %s; write Always, IfNotPresent or Never", o.pullPolicy)
}

// pod makes the pod with the tools and the claim. It meets the Pod Security Standard "restricted", unless it runs as root.
func (o *options) pod(claim *corev1.PersistentVolumeClaim, vm *virtv1.VirtualMachine, ids identity, terminal bool) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: prefix + claim.Name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(!o.root), RunAsUser: ids.user, RunAsGroup: ids.group, FSGroup: ids.files,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{o.container(claim, terminal)},
			Volumes: []corev1.Volume{
				{Name: volumeDisk, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}},
				{Name: volumeTemp, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: volumeHome, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
	if template := vm.Spec.Template; template != nil {
		pod.Labels = template.ObjectMeta.Labels
		pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations = template.Spec.NodeSelector, template.Spec.Affinity, template.Spec.Tolerations
	}
	return pod
}

func (o *options) container(claim *corev1.PersistentVolumeClaim, terminal bool) corev1.Container {
	container := corev1.Container{
		Name: containerName, Image: o.image, ImagePullPolicy: corev1.PullPolicy(o.pullPolicy), Command: []string{entrypoint},
		// It ends with the one session that it is for.
		Stdin: true, StdinOnce: true, TTY: terminal,
		Env: []corev1.EnvVar{
			{Name: "LIBGUESTFS_BACKEND", Value: "direct"},
			{Name: "LIBGUESTFS_PATH", Value: applianceDir},
			{Name: "LIBGUESTFS_TMPDIR", Value: temporaryDir},
			{Name: "HOME", Value: homeDir},
		},
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		VolumeMounts:    []corev1.VolumeMount{{Name: volumeTemp, MountPath: temporaryDir}, {Name: volumeHome, MountPath: homeDir}},
	}
	if o.kvm {
		container.Resources.Limits = corev1.ResourceList{names.DeviceKVM: resource.MustParse("1")}
	}
	if mode := claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		container.VolumeDevices = []corev1.VolumeDevice{{Name: volumeDisk, DevicePath: diskDevice}}
		return container
	}
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volumeDisk, MountPath: diskDir})
	container.WorkingDir = diskDir
	return container
}

// placeOf is where the pod has the claim.
func placeOf(pod *corev1.Pod) string {
	if len(pod.Spec.Containers[0].VolumeDevices) > 0 {
		return diskDevice
	}
	return diskDir
}
