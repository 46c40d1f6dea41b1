package datavolume

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/registries"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// Places in an importer pod.
const (
	containerImporter = "importer"
	volumeData        = "cdi-data-vol"
	dataDir           = "/data"
	blockDevice       = "/dev/cdi-block-volume"
	certDir           = "/certs"
	credentialsDir    = "/credentials"
	headersDir        = "/extraheaders"
	scratchDir        = "/scratch"
	maxPodName        = 63 // a pod's name becomes its host name
)

// podInput is all that an importer pod is built from.
type podInput struct {
	DataVolume *cdiv1.DataVolume
	Claim      *corev1.PersistentVolumeClaim
	Image      string
	// Config is what holds for all DataVolumes: what the pod asks for and may have, and preallocation.
	Config cdiv1.CDIConfigStatus
	// Workload is where pods run, how Slipway's own image is pulled, and how much they log.
	Workload cdiconfig.Workload
	// Places are where the image of a registry is looked for, in this order; none for other sources.
	Places []registries.Place
	// Proxy is how servers are reached; of no effect on other sources. ProxySecret names the Secret that the pod
	// waits for with what of it not everyone may read; empty where there is nothing of that kind.
	Proxy       cdiconfig.ImportProxy
	ProxySecret string
	// Token is the password of the pod's progress.
	Token string
	// Binder is a pod whose only work is that its claim gets bound; it imports nothing. Affinity places a pod.
	Affinity *corev1.NodeAffinity
	Binder   bool
	// Upload is what the pod of an upload server needs beside; nil for every other.
	Upload *uploadInput
	// CopyFrom is the claim whose disk the pod copies, nil when it gets the disk from elsewhere.
	CopyFrom *corev1.PersistentVolumeClaim
}

// PodName is the name of a DataVolume's importer pod.
func PodName(dv string) string {
	name := "importer-" + dv
	if len(name) <= maxPodName {
		return name
	}
	sum := sha256.Sum256([]byte(dv))
	return name[:maxPodName-9] + "-" + hex.EncodeToString(sum[:4])
}

// buildPod returns the pod that fills a claim: one container, no privilege, no token.
func buildPod(in podInput) *corev1.Pod {
	dv := in.DataVolume
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: PodName(dv.Name), Namespace: dv.Namespace,
			Labels: map[string]string{
				labelApp: labelAppValue, labelPodKind: containerImporter, names.LabelPod: containerImporter,
				names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "storage",
			},
			OwnerReferences: []metav1.OwnerReference{owner(dv)},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyOnFailure,
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			ServiceAccountName:            dv.Spec.ServiceAccountName,
			PriorityClassName:             dv.Spec.PriorityClassName,
			SecurityContext:               PodSecurity(),
			TerminationGracePeriodSeconds: ptr.To[int64](5),
		},
	}
	container := importerContainer(in)
	addData(in, pod, &container)
	container.Args = append(container.Args, in.Workload.LogArgs()...)
	if in.Affinity != nil {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: in.Affinity}
	}
	switch {
	case in.Binder:
		container.Command, container.Args = []string{"/slipway", "version"}, nil // it has no use for what an import is told
	case in.Upload != nil:
		awaitUpload(in.Upload, pod, &container)
	case in.CopyFrom != nil:
		addCopySource(in.CopyFrom, pod, &container)
	default:
		addSource(in, pod, &container)
		if onServer(dv.Spec.Source) {
			setAll(&pod.Annotations, map[string]string{annotationSettings: settings(in)})
		}
	}
	pod.Spec.Containers = []corev1.Container{container}
	in.Workload.Place(&pod.Spec)
	return pod
}

func importerContainer(in podInput) corev1.Container {
	container := corev1.Container{
		Name: containerImporter, Image: in.Image, ImagePullPolicy: cmp.Or(in.Workload.PullPolicy, corev1.PullIfNotPresent),
		Command: []string{"/slipway", "import"},
		Args: []string{
			"--size=" + strconv.FormatInt(diskSize(in.DataVolume), 10),
			"--termination-log=" + corev1.TerminationMessagePathDefault,
		},
		Resources:       podResources(in.Config),
		SecurityContext: ContainerSecurity(),
	}
	progress.Serve(&container, in.Token)
	return container
}

// PodSecurity is what a pod of ours may do that is for one disk: nothing, as the user of disks.
func PodSecurity() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsUser: new(int64(names.QEMUUser)), RunAsGroup: new(int64(names.QEMUUser)), FSGroup: new(int64(names.QEMUUser)),
		RunAsNonRoot: new(true), FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// ContainerSecurity is what a container of such a pod may do.
func ContainerSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// addData gives the container its claim, and scratch where the claim cannot hold a file.
func addData(in podInput, pod *corev1.Pod, container *corev1.Container) {
	addVolume(pod, volumeData, corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: in.Claim.Name},
	})
	if volumeMode(in.Claim.Spec) == corev1.PersistentVolumeBlock {
		container.VolumeDevices = []corev1.VolumeDevice{{Name: volumeData, DevicePath: blockDevice}}
		addVolume(pod, "scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: scratchLimit(in)}})
		mount(container, "scratch", scratchDir, false)
		container.Args = append(container.Args, "--target="+blockDevice, "--scratch="+scratchDir)
	} else {
		mount(container, volumeData, dataDir, false)
		container.Args = append(container.Args, targetInDirectory(in.DataVolume)...)
	}
	if preallocates(in.DataVolume, &in.Config) {
		container.Args = append(container.Args, "--preallocate")
	}
}

// preallocates says whether what fills dv's claim reserves all of the disk's size.
func preallocates(dv *cdiv1.DataVolume, config *cdiv1.CDIConfigStatus) bool {
	return ptr.Deref(dv.Spec.Preallocation, config.Preallocation) && contentType(dv) != cdiv1.DataVolumeArchive
}

// scratchLimit is more than the importer takes before it gives up, also of a device that was rounded up.
func scratchLimit(in podInput) *resource.Quantity {
	size := max(diskSize(in.DataVolume), in.Claim.Spec.Resources.Requests.Storage().Value(), in.Claim.Status.Capacity.Storage().Value())
	return resource.NewQuantity(transfer.Scratch(size+32<<20), resource.BinarySI)
}

func addVolume(pod *corev1.Pod, name string, source corev1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
}

func mount(container *corev1.Container, name, at string, readOnly bool) {
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: readOnly})
}
