package pod

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// tokenSeconds is for how long a guest's token is asked. It is what Kubernetes asks for
// pods of its own, for which API servers give tokens that last for a year: a guest reads
// its token once.
const tokenSeconds = 3607

// filesSource is what the files on a volume's disc are mounted from; false when the volume
// is no disc, or has all its files in the VMI.
func filesSource(volume virtv1.Volume) (corev1.VolumeSource, bool) {
	var source corev1.VolumeSource
	switch {
	case volume.ConfigMap != nil:
		source.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: volume.ConfigMap.LocalObjectReference, Optional: volume.ConfigMap.Optional}
	case volume.Secret != nil:
		source.Secret = &corev1.SecretVolumeSource{SecretName: volume.Secret.SecretName, Optional: volume.Secret.Optional}
	case volume.DownwardAPI != nil:
		source.DownwardAPI = &corev1.DownwardAPIVolumeSource{Items: downwardItems(volume.DownwardAPI.Fields)}
	case volume.ServiceAccount != nil:
		source.Projected = accountFiles()
	case volume.Sysprep != nil && volume.Sysprep.ConfigMap != nil:
		source.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: *volume.Sysprep.ConfigMap}
	case volume.Sysprep != nil && volume.Sysprep.Secret != nil:
		source.Secret = &corev1.SecretVolumeSource{SecretName: volume.Sysprep.Secret.Name}
	default:
		source.Projected = cloudInitSecrets(volume)
		return source, source.Projected != nil
	}
	return source, true
}

// downwardItems are facts of the launcher pod, those of a container of its only one.
func downwardItems(fields []corev1.DownwardAPIVolumeFile) []corev1.DownwardAPIVolumeFile {
	items := make([]corev1.DownwardAPIVolumeFile, 0, len(fields))
	for _, item := range fields {
		if ref := item.ResourceFieldRef; ref != nil {
			item.ResourceFieldRef = ref.DeepCopy()
			item.ResourceFieldRef.ContainerName = cmp.Or(ref.ContainerName, names.ComputeContainer)
		}
		items = append(items, item)
	}
	return items
}

// accountFiles are what every pod gets that may speak to the API server.
func accountFiles() *corev1.ProjectedVolumeSource {
	authority := &corev1.ConfigMapProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
		Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
	}
	namespace := &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
		{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
	}}
	return &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(tokenSeconds))}},
		{ConfigMap: authority},
		{DownwardAPI: namespace},
	}}
}

// cloudInitSecrets are the keys of all Secrets with volume's user data and network data,
// in one folder; nil for none.
func cloudInitSecrets(volume virtv1.Volume) *corev1.ProjectedVolumeSource {
	projected := &corev1.ProjectedVolumeSource{}
	for _, name := range cloudInitRefs(volume) {
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{
			Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
		})
	}
	if len(projected.Sources) == 0 {
		return nil
	}
	return projected
}

// cloudInitRefs names the Secrets, each once.
func cloudInitRefs(volume virtv1.Volume) []string {
	source := volume.CloudInitNoCloud
	if drive := volume.CloudInitConfigDrive; drive != nil {
		source = new(virtv1.CloudInitNoCloudSource(*drive)) // both have the same fields
	}
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

// serviceAccount is whose the launcher pod is: the account whose token the guest gets, if any.
func serviceAccount(vmi *virtv1.VirtualMachineInstance) string {
	for _, volume := range vmi.Spec.Volumes {
		if volume.ServiceAccount != nil {
			return volume.ServiceAccount.ServiceAccountName
		}
	}
	return vmi.Spec.ServiceAccountName
}
