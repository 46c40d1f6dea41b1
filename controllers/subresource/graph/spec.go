package graph

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// ofSpec are the objects that the spec of an instance names.
func ofSpec(namespace string, spec *virtv1.VirtualMachineInstanceSpec) []virtv1.ObjectGraphNode {
	nodes := credentials(namespace, spec.AccessCredentials)
	for i := range spec.Volumes {
		nodes = append(nodes, volume(namespace, &spec.Volumes[i].VolumeSource)...)
	}
	for i := range spec.Networks {
		if multus := spec.Networks[i].Multus; multus != nil && multus.NetworkName != "" {
			where, name, found := strings.Cut(multus.NetworkName, "/")
			if !found {
				where, name = namespace, multus.NetworkName
			}
			nodes = append(nodes, attachment.optional(where, name))
		}
	}
	return nodes
}

// matched are an instance type or a preference, and the revision of it that the machine keeps to.
func matched(namespace string, matcher virtv1.Matcher, kept *virtv1.InstancetypeStatusRef) []virtv1.ObjectGraphNode {
	var nodes []virtv1.ObjectGraphNode
	for _, name := range []string{"VirtualMachineInstancetype", "VirtualMachinePreference"} {
		if strings.EqualFold(matcher.GetKind(), name) {
			nodes = append(nodes, kind{instancetypes, name, config}.optional(namespace, matcher.GetName()))
		}
	}
	for _, name := range []string{"VirtualMachineClusterInstancetype", "VirtualMachineClusterPreference"} {
		if strings.EqualFold(matcher.GetKind(), name) {
			nodes = append(nodes, kind{instancetypes, name, config}.optional("", matcher.GetName()))
		}
	}
	name := matcher.GetRevisionName()
	if kept != nil {
		name = ""
		if kept.ControllerRevisionRef != nil {
			name = kept.ControllerRevisionRef.Name
		}
	}
	if name != "" {
		nodes = append(nodes, revision.node(namespace, name))
	}
	return nodes
}

func credentials(namespace string, of []virtv1.AccessCredential) []virtv1.ObjectGraphNode {
	var nodes []virtv1.ObjectGraphNode
	for i := range of {
		switch keys, password := of[i].SSHPublicKey, of[i].UserPassword; {
		case keys != nil && keys.Source.Secret != nil:
			nodes = append(nodes, secret.node(namespace, keys.Source.Secret.SecretName))
		case password != nil && password.Source.Secret != nil:
			nodes = append(nodes, secret.node(namespace, password.Source.Secret.SecretName))
		}
	}
	return nodes
}

// volume are the objects that a volume is filled from.
func volume(namespace string, v *virtv1.VolumeSource) []virtv1.ObjectGraphNode {
	switch {
	case v.DataVolume != nil: // its claim has its name
		return []virtv1.ObjectGraphNode{dataVolume.node(namespace, v.DataVolume.Name, claim.node(namespace, v.DataVolume.Name))}
	case v.PersistentVolumeClaim != nil:
		return []virtv1.ObjectGraphNode{claim.node(namespace, v.PersistentVolumeClaim.ClaimName)}
	case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
		return []virtv1.ObjectGraphNode{claim.node(namespace, v.Ephemeral.PersistentVolumeClaim.ClaimName)}
	case v.MemoryDump != nil:
		return []virtv1.ObjectGraphNode{claim.node(namespace, v.MemoryDump.ClaimName)}
	case v.ConfigMap != nil:
		return []virtv1.ObjectGraphNode{configMap.node(namespace, v.ConfigMap.Name)}
	case v.Secret != nil:
		return []virtv1.ObjectGraphNode{secret.node(namespace, v.Secret.SecretName)}
	case v.ServiceAccount != nil:
		return []virtv1.ObjectGraphNode{account.node(namespace, v.ServiceAccount.ServiceAccountName)}
	case v.Sysprep != nil:
		return answers(namespace, v.Sysprep)
	case v.CloudInitNoCloud != nil:
		return named(namespace, v.CloudInitNoCloud.UserDataSecretRef, v.CloudInitNoCloud.NetworkDataSecretRef)
	case v.CloudInitConfigDrive != nil:
		return named(namespace, v.CloudInitConfigDrive.UserDataSecretRef, v.CloudInitConfigDrive.NetworkDataSecretRef)
	case v.ContainerDisk != nil && v.ContainerDisk.ImagePullSecret != "":
		return []virtv1.ObjectGraphNode{secret.node(namespace, v.ContainerDisk.ImagePullSecret)}
	}
	return nil
}

// answers are what an answer file of Windows comes from.
func answers(namespace string, from *virtv1.SysprepSource) []virtv1.ObjectGraphNode {
	if from.ConfigMap != nil {
		return []virtv1.ObjectGraphNode{configMap.node(namespace, from.ConfigMap.Name)}
	}
	return named(namespace, from.Secret)
}

// named are the Secrets that are referred to.
func named(namespace string, references ...*corev1.LocalObjectReference) []virtv1.ObjectGraphNode {
	var nodes []virtv1.ObjectGraphNode
	for _, reference := range references {
		if reference != nil {
			nodes = append(nodes, secret.node(namespace, reference.Name))
		}
	}
	return nodes
}
