package pod

import (
	"path"
	"slices"
	"strings"

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
	if hasContainerDisk(in.VMI) && !in.ImageVolumes {
		all = append(all, emptyDir(names.VolumeBin))
	}
	all = append(all, hugepageVolumes(in.VMI)...)
	all = append(all, stateVolumes(in)...)
	for _, volume := range in.VMI.Spec.Volumes {
		if claim, ok := in.Claims[volume.Name]; ok {
			all = append(all, claimVolume(volume.Name, claim))
		}
		if source, ok := filesSource(volume); ok {
			all = append(all, corev1.Volume{Name: podVolume(volume.Name), VolumeSource: source})
		}
		if volume.HostDisk != nil {
			all = append(all, hostDiskVolume(volume.Name, volume.HostDisk))
		}
	}
	images, _ := imageVolumes(in)
	access, _ := accessVolumes(in.VMI)
	return slices.Concat(all, images, access)
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func claimVolume(name string, claim Claim) corev1.Volume {
	return corev1.Volume{Name: podVolume(name), VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name, ReadOnly: claim.ReadOnly},
	}}
}

// hostDiskVolume is the folder of a file of the node, which the node makes where the file may be made.
func hostDiskVolume(name string, disk *virtv1.HostDisk) corev1.Volume {
	kind := corev1.HostPathDirectory
	if disk.Type == virtv1.HostDiskExistsOrCreate {
		kind = corev1.HostPathDirectoryOrCreate
	}
	return corev1.Volume{Name: podVolume(name), VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path.Dir(disk.Path), Type: &kind},
	}}
}

// podVolume is the name of a VMI's volume in the pod, which cannot meet our own names.
func podVolume(name string) string {
	switch name {
	case names.VolumeSockets, names.VolumePrivate, names.VolumeLibvirt, names.VolumeBin, names.VolumeState, names.VolumeHugepages, names.VolumeKernel:
		return "volume-" + name
	}
	if strings.HasPrefix(name, names.VolumeAccess) {
		return "volume-" + name
	}
	return name
}

// claimMounts are the places of claims, of folders of the node, and of what discs are made of, in the compute container.
func claimMounts(in Input) ([]corev1.VolumeMount, []corev1.VolumeDevice) {
	var mounts []corev1.VolumeMount
	var blocks []corev1.VolumeDevice
	for _, volume := range in.VMI.Spec.Volumes {
		name := podVolume(volume.Name)
		claim, isClaim := in.Claims[volume.Name]
		_, isFiles := filesSource(volume)
		switch {
		case isClaim && claim.Block:
			blocks = append(blocks, corev1.VolumeDevice{Name: name, DevicePath: path.Join(names.LauncherBlockDir, volume.Name)})
		case isClaim:
			mounts = append(mounts, corev1.VolumeMount{
				Name: name, MountPath: path.Join(names.LauncherDisksDir, volume.Name), ReadOnly: claim.ReadOnly || claim.Base,
			})
		case volume.HostDisk != nil:
			mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: path.Join(names.LauncherDisksDir, volume.Name)})
		case isFiles:
			mounts = append(mounts, corev1.VolumeMount{
				Name: name, MountPath: path.Join(names.LauncherSecretsDir, volume.Name), ReadOnly: true,
			})
		}
	}
	return mounts, blocks
}

// hasContainerDisk says whether vmi needs a file out of an image.
func hasContainerDisk(vmi *virtv1.VirtualMachineInstance) bool {
	for _, volume := range vmi.Spec.Volumes {
		if volume.ContainerDisk != nil {
			return true
		}
	}
	return kernelContainer(vmi) != nil
}

// containerDiskInits hand the disks in images to the node's handler: the first copies
// the program that does it where the others, which run in the images, find it.
func containerDiskInits(in Input) []corev1.Container {
	if !hasContainerDisk(in.VMI) || in.ImageVolumes {
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
	for _, file := range filesInImages(in.VMI) {
		bin.ReadOnly = true
		args := []string{"--volume", file.name}
		if file.path != "" {
			args = append(args, "--path", file.path)
		}
		inits = append(inits, initContainer(corev1.Container{
			Name:            file.container,
			Image:           file.image,
			ImagePullPolicy: file.policy,
			Command:         []string{binary},
			Args:            args,
			VolumeMounts: []corev1.VolumeMount{
				{Name: names.VolumeSockets, MountPath: names.LauncherSocketDir}, bin,
			},
		}))
	}
	return inits
}

// fileInImage is a file that an init container hands over out of its own image.
type fileInImage struct {
	// name is what the launcher knows it by: the volume's.
	name, path, container, image string
	policy                       corev1.PullPolicy
}

func filesInImages(vmi *virtv1.VirtualMachineInstance) []fileInImage {
	var files []fileInImage
	for _, volume := range vmi.Spec.Volumes {
		if disk := volume.ContainerDisk; disk != nil {
			files = append(files, fileInImage{name: volume.Name, path: disk.Path, container: "volume" + volume.Name, image: disk.Image, policy: disk.ImagePullPolicy})
		}
	}
	return append(files, kernelFiles(vmi)...)
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

// pullSecrets are those of the launcher's own image and of the guest's images, each once.
func pullSecrets(in Input) []corev1.LocalObjectReference {
	var secrets []corev1.LocalObjectReference
	seen := map[string]bool{"": true}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			secrets = append(secrets, corev1.LocalObjectReference{Name: name})
		}
	}
	for _, secret := range in.PullSecrets {
		add(secret.Name)
	}
	for _, volume := range in.VMI.Spec.Volumes {
		if disk := volume.ContainerDisk; disk != nil {
			add(disk.ImagePullSecret)
		}
	}
	if kernel := kernelContainer(in.VMI); kernel != nil {
		add(kernel.ImagePullSecret)
	}
	return secrets
}
