package datavolume

import (
	"fmt"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// schemeDocker begins the URL of an image in a registry.
const schemeDocker = "docker://"

// downloads reports whether source is a file on a server.
func downloads(source *cdiv1.DataVolumeSource) bool {
	return source != nil && (source.HTTP != nil || source.S3 != nil || source.GCS != nil)
}

// onServer reports whether an importer reads source from a server: a file's, or a registry. What the kubelet pulls it does not.
func onServer(source *cdiv1.DataVolumeSource) bool {
	return downloads(source) || source != nil && source.Registry != nil && !PulledByNode(source)
}

// clones reports whether source is a claim or a snapshot.
func clones(source *cdiv1.DataVolumeSource) bool { return source.PVC != nil || source.Snapshot != nil }

// contentType is what the DataVolume's source holds: a disk, unless it says otherwise.
func contentType(dv *cdiv1.DataVolume) cdiv1.DataVolumeContentType {
	if dv.Spec.ContentType == "" {
		return cdiv1.DataVolumeKubeVirt
	}
	return dv.Spec.ContentType
}

// refuseArchive says why dv, when its contentType is archive, cannot be filled; "" when it can.
func refuseArchive(dv *cdiv1.DataVolume) string {
	spec := &dv.Spec
	if contentType(dv) != cdiv1.DataVolumeArchive {
		return ""
	}
	if !downloads(spec.Source) && !isUpload(dv) {
		return "spec.contentType archive is supported with source http, s3, gcs and upload only; use one of them"
	}
	var mode *corev1.PersistentVolumeMode
	if spec.PVC != nil {
		mode = spec.PVC.VolumeMode
	} else if spec.Storage != nil {
		mode = spec.Storage.VolumeMode
	}
	if mode != nil && *mode == corev1.PersistentVolumeBlock {
		return "spec.contentType archive needs a file system; set volumeMode Filesystem"
	}
	if ptr.Deref(spec.Preallocation, false) {
		return "spec.preallocation is for disks, not for contentType archive; remove it"
	}
	return ""
}

// refuseLimit says why dv's limit of its download cannot be kept; "" when it can. Admission says it before.
func refuseLimit(dv *cdiv1.DataVolume) string {
	if _, err := transfer.ParseBandwidth(dv.Annotations[names.AnnotationBandwidth]); err != nil {
		return fmt.Sprintf("annotation %s: %v", names.AnnotationBandwidth, err)
	}
	return refusedPull(dv)
}

// addLimit tells the container how much it may download in a second, where the DataVolume says it.
func addLimit(dv *cdiv1.DataVolume, container *corev1.Container) {
	if bytes, err := transfer.ParseBandwidth(dv.Annotations[names.AnnotationBandwidth]); err == nil && bytes > 0 {
		container.Args = append(container.Args, fmt.Sprintf("--bytes-per-second=%d", bytes))
	}
}

// targetInDirectory are the arguments that say what to make in the claim's directory.
func targetInDirectory(dv *cdiv1.DataVolume) []string {
	if contentType(dv) == cdiv1.DataVolumeArchive {
		return []string{"--archive", "--target=" + dataDir}
	}
	return []string{"--target=" + path.Join(dataDir, names.DiskFile)}
}

// addSource tells the container what it reads and mounts what it needs for that; a blank disk needs nothing.
func addSource(in podInput, pod *corev1.Pod, container *corev1.Container) {
	if source := in.DataVolume.Spec.Source; source != nil && source.Blank == nil {
		addLimit(in.DataVolume, container)
	}
	if onServer(in.DataVolume.Spec.Source) {
		addProxy(in, pod, container)
	}
	switch source := in.DataVolume.Spec.Source; {
	case source == nil:
	case source.HTTP != nil:
		addHTTP(source.HTTP, pod, container)
	case source.S3 != nil:
		container.Args = append(container.Args, "--url="+source.S3.URL, "--source="+transfer.SourceS3)
		addCertificates(source.S3.CertConfigMap, pod, container)
		addCredentials(source.S3.SecretRef, pod, container)
	case PulledByNode(source):
		addPulled(source.Registry, pod, container)
	case source.Registry != nil:
		addRegistry(source.Registry, in.Places, pod, container)
	case source.GCS != nil:
		container.Args = append(container.Args, "--url="+source.GCS.URL, "--source="+transfer.SourceGCS)
		addCredentials(source.GCS.SecretRef, pod, container)
	}
}

// addHTTP tells the container its URL and mounts what it needs to read it.
func addHTTP(http *cdiv1.DataVolumeSourceHTTP, pod *corev1.Pod, container *corev1.Container) {
	container.Args = append(container.Args, "--url="+http.URL)
	if http.Checksum != "" {
		container.Args = append(container.Args, "--checksum="+http.Checksum)
	}
	if ptr.Deref(http.InsecureSkipVerify, false) {
		container.Args = append(container.Args, "--insecure-skip-verify")
	}
	for _, header := range http.ExtraHeaders {
		container.Args = append(container.Args, "--header="+header)
	}
	addCertificates(http.CertConfigMap, pod, container)
	addCredentials(http.SecretRef, pod, container)
	for n, secret := range http.SecretExtraHeaders {
		name := fmt.Sprintf("extraheader-%d", n)
		addVolume(pod, name, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}})
		mount(container, name, path.Join(headersDir, strconv.Itoa(n)), true)
	}
	if len(http.SecretExtraHeaders) > 0 {
		container.Args = append(container.Args, "--secret-headers-dir="+headersDir)
	}
}

// addCertificates gives the container the authorities of a ConfigMap; an empty name gives none.
func addCertificates(configMap string, pod *corev1.Pod, container *corev1.Container) {
	if configMap == "" {
		return
	}
	addVolume(pod, "certs", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap},
	}})
	mount(container, "certs", certDir, true)
	container.Args = append(container.Args, "--cert-dir="+certDir)
}

// addCredentials gives the container the user and the password of a Secret; an empty name gives none.
func addCredentials(secret string, pod *corev1.Pod, container *corev1.Container) {
	if secret == "" {
		return
	}
	addVolume(pod, "credentials", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}})
	mount(container, "credentials", credentialsDir, true)
	container.Args = append(container.Args, "--credentials-dir="+credentialsDir)
}
