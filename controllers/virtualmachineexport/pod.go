package virtualmachineexport

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// podInput is all that an export server's pod is built from.
type podInput struct {
	Export  *exportv1.VirtualMachineExport
	Volumes []Volume
	Image   string
	Known   identity
	// Definition is the name of the Secret with the definition of the VM, "" for none.
	Definition string
	// TLS is how the server speaks TLS; nil for 1.2 and newer.
	TLS *tlspolicy.Settings
	// Resources are those of its container.
	Resources corev1.ResourceRequirements
	// PullSecrets are for the image, in the export's namespace.
	PullSecrets []corev1.LocalObjectReference
}

const portExport = "export"

// buildPod returns the pod that gives out the volumes: one container, no privilege, no token of the cluster,
// and nothing that it could write to.
func buildPod(in podInput) *corev1.Pod {
	export := in.Export
	name := vmexport.ServerName(export.Name)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: export.Namespace, Name: name, Labels: passedOn(export.Labels),
			Annotations:     passedOn(export.Annotations),
			OwnerReferences: []metav1.OwnerReference{owner(export)},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyOnFailure,
			AutomountServiceAccountToken: new(false),
			EnableServiceLinks:           new(false),
			ImagePullSecrets:             slices.Clone(in.PullSecrets),
			SecurityContext: &corev1.PodSecurityContext{
				// No fsGroup: the kubelet would give the files of a volume to that group, and an export changes nothing.
				RunAsUser: new(int64(names.QEMUUser)), RunAsGroup: new(int64(names.QEMUUser)), RunAsNonRoot: new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			TerminationGracePeriodSeconds: ptr.To[int64](5),
		},
	}
	maps.Copy(pod.Labels, podLabels(name))
	maps.Copy(pod.Annotations, in.Known.annotations())
	pod.Annotations[annotationVolumes] = digest(in.Volumes)
	container := serverContainer(in)
	addSecret(pod, &container, "certificate", in.Known.Certificate, certDir)
	addSecret(pod, &container, "token", tokenSecret(export), tokenDir)
	if in.Definition != "" {
		addSecret(pod, &container, "definition", in.Definition, definitionDir)
		container.Args = append(container.Args, "--manifest="+path.Join(definitionDir, vmexport.KeyManifest), "--header-secret="+vmexport.HeaderSecret(export.Name))
	}
	for i, volume := range in.Volumes {
		addVolume(pod, &container, fmt.Sprintf("volume-%d", i), volume)
	}
	pod.Spec.Containers = []corev1.Container{container}
	return pod
}

// digest tells what a server gives out apart from what another one does, in whichever order.
func digest(volumes []Volume) string {
	var all []string
	for _, v := range volumes {
		all = append(all, fmt.Sprintf("%s=%s block=%t disk=%t", v.Name, v.Claim, v.Block, v.Disk))
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:])
}

func podLabels(name string) map[string]string {
	return map[string]string{
		virtv1.AppLabel: exportv1.App, labelService: name, names.LabelPod: podKind,
		names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "storage",
	}
}

// keptBack are the domains of labels and annotations that say something to Slipway, or of what the pod is confined by; and
// what kubectl notes for itself.
var keptBack = []string{
	"kubevirt.io", strings.TrimSuffix(names.Domain, "/"), "apparmor.security.beta.kubernetes.io", "seccomp.security.alpha.kubernetes.io",
	"kubectl.kubernetes.io",
}

// passedOn are the labels or annotations of an export that its pod has, too: for networks, schedulers, or policies of the
// cluster to go by. Those that speak of something else stay with the export.
func passedOn(given map[string]string) map[string]string {
	passed := map[string]string{}
	for key, value := range given {
		domain, _, _ := strings.Cut(key, "/")
		if !slices.ContainsFunc(keptBack, func(kept string) bool { return domain == kept || strings.HasSuffix(domain, "."+kept) }) {
			passed[key] = value
		}
	}
	return passed
}

func serverContainer(in podInput) corev1.Container {
	args := []string{
		fmt.Sprintf("--address=:%d", vmexport.Port), "--cert-dir=" + certDir, "--token-file=" + path.Join(tokenDir, vmexport.KeyToken),
		"--deadline=" + vmexport.Expiry(in.Export).UTC().Format(time.RFC3339),
	}
	return corev1.Container{
		Name: podKind, Image: in.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/slipway", "export-server"},
		Args:    append(args, in.TLS.Args()...),
		Ports:   []corev1.ContainerPort{{Name: portExport, ContainerPort: vmexport.Port, Protocol: corev1.ProtocolTCP}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: vmexport.PathHealth, Port: intstr.FromString(portExport), Scheme: corev1.URISchemeHTTPS,
			}},
			PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 30, // busy with downloads it is still there
		},
		Resources: in.Resources,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// addSecret gives the container a Secret, which is root's files: nobody else is in the pod to read them.
func addSecret(pod *corev1.Pod, container *corev1.Container, volume, secret, at string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: new(int32(0o444))},
	}})
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: at, ReadOnly: true})
}

// addVolume gives the container a claim, to read it.
func addVolume(pod *corev1.Pod, container *corev1.Container, name string, volume Volume) {
	source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume.Claim, ReadOnly: volume.Block}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source}})
	at := path.Join(folderDir, volume.Claim)
	if volume.Block {
		at = path.Join(blockDir, volume.Claim)
		container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: name, DevicePath: at})
	} else {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: true})
	}
	flag := map[bool]string{true: "--disk=", false: "--files="}[volume.Disk]
	container.Args = append(container.Args, flag+volume.Name+"="+at)
}

// buildService returns the Service that leads to an export's server, and says by what that is known.
func buildService(export *exportv1.VirtualMachineExport, known identity) *corev1.Service {
	name := vmexport.ServerName(export.Name)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: export.Namespace, Name: name, Labels: secretLabels(), Annotations: known.annotations(),
			OwnerReferences: []metav1.OwnerReference{owner(export)},
		},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{labelService: name},
			Ports: []corev1.ServicePort{{
				Name: portExport, Port: vmexport.ServicePort, TargetPort: intstr.FromInt32(vmexport.Port), Protocol: corev1.ProtocolTCP,
			}},
		},
	}
}

// buildSecret returns a Secret that goes with export.
func buildSecret(export *exportv1.VirtualMachineExport, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: export.Namespace, Name: name, Labels: secretLabels(), OwnerReferences: []metav1.OwnerReference{owner(export)},
		},
		Type: corev1.SecretTypeOpaque, Data: data,
	}
}

func secretLabels() map[string]string {
	return map[string]string{virtv1.AppLabel: exportv1.App, names.LabelManagedBy: names.ManagedBy}
}
