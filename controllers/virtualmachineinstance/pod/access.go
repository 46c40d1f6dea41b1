package pod

import (
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// accessVolumes show the Secrets of access credentials, each in a folder of its own, so
// that the launcher sees their changes and needs no right to read them.
func accessVolumes(vmi *virtv1.VirtualMachineInstance) ([]corev1.Volume, []corev1.VolumeMount) {
	var volumes []corev1.Volume
	var mounts []corev1.VolumeMount
	for i, credential := range vmi.Spec.AccessCredentials {
		secret := accessSecret(credential)
		if secret == "" {
			continue
		}
		name := names.VolumeAccess + strconv.Itoa(i)
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: secret},
		}})
		mounts = append(mounts, corev1.VolumeMount{
			Name: name, MountPath: path.Join(names.LauncherCredentialsDir, strconv.Itoa(i)), ReadOnly: true,
		})
	}
	return volumes, mounts
}

func accessSecret(credential virtv1.AccessCredential) string {
	switch key, password := credential.SSHPublicKey, credential.UserPassword; {
	case key != nil && key.Source.Secret != nil:
		return key.Source.Secret.SecretName
	case password != nil && password.Source.Secret != nil:
		return password.Source.Secret.SecretName
	}
	return ""
}
