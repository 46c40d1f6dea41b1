package datavolume

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
)

const (
	// containerUpload is the container of an upload server, and the kind of its pod.
	containerUpload = "cdi-upload-server"
	// labelService on an upload server's pod is the name of its Service.
	labelService = "service"
	// annotationAuthority on an upload server's pod names who has made its certificate.
	annotationAuthority = names.Domain + "upload-authority"
	// annotationTLS on an upload server's pod says how it speaks TLS, where something is set.
	annotationTLS     = names.Domain + "upload-tls"
	volumeUploadCerts = "upload-certs"
	portUpload        = "upload"
)

// uploadInput is what the pod of an upload server is built from, beside what every importer's is.
type uploadInput struct {
	// Secret will have its certificate.
	Secret string
	// Authority names who makes that.
	Authority string
	// TLS are the flags that say how it speaks TLS; none for 1.2 and newer.
	TLS []string
}

// awaitUpload makes of an importer's pod and container those of an upload server.
func awaitUpload(in *uploadInput, pod *corev1.Pod, container *corev1.Container) {
	name := upload.ServerName(pod.OwnerReferences[0].Name)
	pod.Name = name
	setAll(&pod.Labels, map[string]string{labelPodKind: containerUpload, names.LabelPod: containerUpload, labelService: name})
	setAll(&pod.Annotations, map[string]string{annotationAuthority: in.Authority})
	if len(in.TLS) > 0 {
		setAll(&pod.Annotations, map[string]string{annotationTLS: strings.Join(in.TLS, " ")})
	}
	container.Name, container.Command[1] = containerUpload, "upload-server"
	for n, arg := range container.Args {
		if arg == fmt.Sprintf("--progress-address=:%d", transfer.ProgressPort) {
			container.Args[n] = fmt.Sprintf("--progress-address=:%d", upload.ServerProgressPort)
		}
	}
	container.Args = append(container.Args, fmt.Sprintf("--address=:%d", upload.ServerPort), "--cert-dir="+certDir)
	container.Args = append(container.Args, in.TLS...)
	container.Ports = []corev1.ContainerPort{
		{Name: portUpload, ContainerPort: upload.ServerPort, Protocol: corev1.ProtocolTCP},
		{Name: progress.Port, ContainerPort: upload.ServerProgressPort, Protocol: corev1.ProtocolTCP},
	}
	container.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: upload.PathHealth, Port: intstr.FromString(portUpload), Scheme: corev1.URISchemeHTTPS,
		}},
		PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 30, // busy with an image it is still there
	}
	addVolume(pod, volumeUploadCerts, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: in.Secret, DefaultMode: new(int32(0o440))}})
	mount(container, volumeUploadCerts, certDir, true)
}

// secretOf is the name of the Secret that an upload server's pod waits for.
func secretOf(pod *corev1.Pod) string {
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == volumeUploadCerts && volume.Secret != nil {
			return volume.Secret.SecretName
		}
	}
	return ""
}

// buildUploadSecret returns the certificate of an upload server. It goes with the pod.
func buildUploadSecret(pod *corev1.Pod, name string, issued certs.Issued) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: name,
			Labels:          map[string]string{labelApp: labelAppValue, labelPodKind: containerUpload, names.LabelManagedBy: names.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{certs.KeyCert: issued.Cert, certs.KeyKey: issued.Key, certs.KeyBundle: issued.Bundle},
	}
}

// buildUploadService returns the Service that leads to the upload server of a DataVolume.
func buildUploadService(dv *cdiv1.DataVolume) *corev1.Service {
	name := upload.ServerName(dv.Name)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: dv.Namespace, Name: name,
			Labels:          map[string]string{labelApp: labelAppValue, labelPodKind: containerUpload, names.LabelManagedBy: names.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{owner(dv)},
		},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{labelService: name},
			Ports:    []corev1.ServicePort{{Name: portUpload, Port: 443, TargetPort: intstr.FromInt32(upload.ServerPort), Protocol: corev1.ProtocolTCP}},
		},
	}
}
