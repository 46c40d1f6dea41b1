package pool

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
)

// references are the names of ConfigMaps and Secrets in volume that generation wants to
// have the ordinal.
func references(volume *virtv1.VolumeSource, generation *poolv1.VirtualMachinePoolNameGeneration) []*string {
	var found []*string
	if generation == nil {
		return nil
	}
	if ptr.Deref(generation.AppendIndexToConfigMapRefs, false) {
		found = append(found, configMaps(volume)...)
	}
	if ptr.Deref(generation.AppendIndexToSecretRefs, false) {
		found = append(found, secrets(volume)...)
	}
	return found
}

func configMaps(volume *virtv1.VolumeSource) []*string {
	var refs []*corev1.LocalObjectReference
	if volume.ConfigMap != nil {
		refs = append(refs, &volume.ConfigMap.LocalObjectReference)
	}
	if volume.Sysprep != nil {
		refs = append(refs, volume.Sysprep.ConfigMap)
	}
	return namesOf(refs)
}

func secrets(volume *virtv1.VolumeSource) []*string {
	var refs []*corev1.LocalObjectReference
	if volume.Sysprep != nil {
		refs = append(refs, volume.Sysprep.Secret)
	}
	if c := volume.CloudInitNoCloud; c != nil {
		refs = append(refs, c.UserDataSecretRef, c.NetworkDataSecretRef)
	}
	if c := volume.CloudInitConfigDrive; c != nil {
		refs = append(refs, c.UserDataSecretRef, c.NetworkDataSecretRef)
	}
	found := namesOf(refs)
	if volume.Secret != nil {
		found = append(found, &volume.Secret.SecretName)
	}
	return found
}

// namesOf are the names in those of refs that there are.
func namesOf(refs []*corev1.LocalObjectReference) []*string {
	var found []*string
	for _, ref := range refs {
		if ref != nil && ref.Name != "" {
			found = append(found, &ref.Name)
		}
	}
	return found
}
