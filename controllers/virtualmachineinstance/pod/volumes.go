package pod

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// containerDiskBinary is the program in the launcher image that runs in the images
// of container disks, which hold no program of their own.
const containerDiskBinary = "container-disk"

// ownMounts are the compute container's own folders.
func ownMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: names.VolumeSockets, MountPath: names.LauncherSocketDir},
		{Name: names.VolumePrivate, MountPath: names.LauncherPrivateDir},
		{Name: names.VolumeLibvirt, MountPath: names.LauncherLibvirtDir},
	}
}

func volumes(in Input) []corev1.Volume {
	all := []corev1.Volume{emptyDir(names.VolumeSockets), emptyDir(names.VolumePrivate), emptyDir(names.VolumeLibvirt)}
	if hasContainerDisk(in.VMI) {
		all = append(all, emptyDir(names.VolumeBin))
	}
	for _, volume := range in.VMI.Spec.Volumes {
		if claim, ok := in.Claims[volume.Name]; ok {
			all = append(all, claimVolume(volume.Name, claim))
		}
		if secrets := cloudInitSecrets(volume); len(secrets) > 0 {
			all = append(all, secretsVolume(volume.Name, secrets))
		}
		if volume.Sysprep != nil {
			all = append(all, answersVolume(volume.Name, volume.Sysprep))
		}
	}
	return all
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func claimVolume(name string, claim Claim) corev1.Volume {
	return corev1.Volume{Name: podVolume(name), VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name, ReadOnly: claim.ReadOnly},
	}}
}

// secretsVolume shows the keys of all secrets in one folder.
func secretsVolume(name string, secrets []string) corev1.Volume {
	projected := &corev1.ProjectedVolumeSource{}
	for _, secret := range secrets {
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{
			Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}},
		})
	}
	return corev1.Volume{Name: podVolume(name), VolumeSource: corev1.VolumeSource{Projected: projected}}
}

// answersVolume shows the keys of a sysprep volume's source.
func answersVolume(name string, source *virtv1.SysprepSource) corev1.Volume {
	volume := corev1.Volume{Name: podVolume(name)}
	switch {
	case source.ConfigMap != nil:
		volume.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: *source.ConfigMap}
	case source.Secret != nil:
		volume.Secret = &corev1.SecretVolumeSource{SecretName: source.Secret.Name}
	}
	return volume
}

// podVolume is the name of a VMI's volume in the pod, which cannot meet our own names.
func podVolume(name string) string {
	switch name {
	case names.VolumeSockets, names.VolumePrivate, names.VolumeLibvirt, names.VolumeBin:
		return "volume-" + name
	}
	return name
}

// cloudInitSecrets names the secrets that volume's user data and network data are in.
func cloudInitSecrets(volume virtv1.Volume) []string {
	source := volume.CloudInitNoCloud
	if source == nil {
		return nil
	}
	var secrets []string
	if source.UserDataSecretRef != nil {
		secrets = append(secrets, source.UserDataSecretRef.Name)
	}
	if ref := source.NetworkDataSecretRef; ref != nil && (len(secrets) == 0 || secrets[0] != ref.Name) {
		secrets = append(secrets, ref.Name)
	}
	return secrets
}

// claimMounts are the places of claims, secrets and answer files in the compute container.
func claimMounts(in Input) ([]corev1.VolumeMount, []corev1.VolumeDevice) {
	var mounts []corev1.VolumeMount
	var blocks []corev1.VolumeDevice
	for _, volume := range in.VMI.Spec.Volumes {
		name := podVolume(volume.Name)
		claim, isClaim := in.Claims[volume.Name]
		switch {
		case isClaim && claim.Block:
			blocks = append(blocks, corev1.VolumeDevice{Name: name, DevicePath: path.Join(names.LauncherBlockDir, volume.Name)})
		case isClaim:
			mounts = append(mounts, corev1.VolumeMount{
				Name: name, MountPath: path.Join(names.LauncherDisksDir, volume.Name), ReadOnly: claim.ReadOnly,
			})
		case len(cloudInitSecrets(volume)) > 0, volume.Sysprep != nil:
			mounts = append(mounts, corev1.VolumeMount{
				Name: name, MountPath: path.Join(names.LauncherSecretsDir, volume.Name), ReadOnly: true,
			})
		}
	}
	return mounts, blocks
}

func hasContainerDisk(vmi *virtv1.VirtualMachineInstance) bool {
	for _, volume := range vmi.Spec.Volumes {
		if volume.ContainerDisk != nil {
			return true
		}
	}
	return false
}

// containerDiskInits hand the disks in images to the node's handler: the first copies
// the program that does it where the others, which run in the images, find it.
func containerDiskInits(in Input) []corev1.Container {
	if !hasContainerDisk(in.VMI) {
		return nil
	}
	binary := path.Join(names.LauncherBinDir, containerDiskBinary)
	bin := corev1.VolumeMount{Name: names.VolumeBin, MountPath: names.LauncherBinDir}
	inits := []corev1.Container{initContainer(corev1.Container{
		Name:            "container-disk-binary",
		Image:           in.LauncherImage,
		ImagePullPolicy: in.PullPolicy,
		Command:         []string{"/usr/bin/cp", "/usr/bin/" + containerDiskBinary, binary},
		VolumeMounts:    []corev1.VolumeMount{bin},
	})}
	for _, volume := range in.VMI.Spec.Volumes {
		disk := volume.ContainerDisk
		if disk == nil {
			continue
		}
		bin.ReadOnly = true
		args := []string{"--volume", volume.Name}
		if disk.Path != "" {
			args = append(args, "--path", disk.Path)
		}
		inits = append(inits, initContainer(corev1.Container{
			Name:            "volume" + volume.Name,
			Image:           disk.Image,
			ImagePullPolicy: disk.ImagePullPolicy,
			Command:         []string{binary},
			Args:            args,
			VolumeMounts: []corev1.VolumeMount{
				{Name: names.VolumeSockets, MountPath: names.LauncherSocketDir}, bin,
			},
		}))
	}
	return inits
}

// initContainer adds what all our init containers have. Their requests are far below
// the compute container's, so they cost a pod nothing; a quota may demand them.
func initContainer(c corev1.Container) corev1.Container {
	c.Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("10m"),
		corev1.ResourceMemory: resource.MustParse("16Mi"),
	}
	c.SecurityContext = containerSecurity()
	return c
}

func pullSecrets(vmi *virtv1.VirtualMachineInstance) []corev1.LocalObjectReference {
	var secrets []corev1.LocalObjectReference
	seen := map[string]bool{}
	for _, volume := range vmi.Spec.Volumes {
		if disk := volume.ContainerDisk; disk != nil && disk.ImagePullSecret != "" && !seen[disk.ImagePullSecret] {
			seen[disk.ImagePullSecret] = true
			secrets = append(secrets, corev1.LocalObjectReference{Name: disk.ImagePullSecret})
		}
	}
	return secrets
}
