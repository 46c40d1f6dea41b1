package datavolume

import (
	"context"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// Where an image that the node pulls finds the importer, which it does not hold itself.
const (
	containerProgram = "program" // brings the importer
	volumeProgram    = "program"
	programDir       = "/slipway-program"
)

// What OpenShift has for images: the API of ImageStreams, and the annotation of a pod that may name its images by them.
const (
	groupStreams     = "image.openshift.io"
	annotationLookup = "alpha.image.policy.openshift.io/resolve-names"
	schemeStream     = "imagestream:" // as the importer names it
)

// PulledByNode reports whether the kubelet pulls the source's image, with the node's credentials and mirrors.
func PulledByNode(source *cdiv1.DataVolumeSource) bool {
	return source != nil && source.Registry != nil && ptr.Deref(source.Registry.PullMethod, "") == cdiv1.RegistryPullNode
}

// refusedPull says what of an image that the node pulls cannot be done. Admission says it before, of what comes by it.
func refusedPull(dv *cdiv1.DataVolume) string {
	switch source := dv.Spec.Source; {
	case !PulledByNode(source):
		return ""
	case ptr.Deref(source.Registry.CertConfigMap, "") != "":
		return "spec.source.registry.certConfigMap is for pullMethod pod: a node trusts the authorities of its container runtime; remove it"
	case dv.Annotations[names.AnnotationBandwidth] != "":
		return fmt.Sprintf("annotation %s: the kubelet pulls the image, and is not slowed; remove it, or use pullMethod pod", names.AnnotationBandwidth)
	}
	return ""
}

// refuseStream ends the pass on an image of an ImageStream where the cluster has none.
func (r *Reconciler) refuseStream(_ context.Context, s *scope) error {
	if s.failed != nil || s.done() || !PulledByNode(s.dv.Spec.Source) || s.dv.Spec.Source.Registry.ImageStream == nil {
		return nil
	}
	_, err := r.RESTMapper().RESTMapping(schema.GroupKind{Group: groupStreams, Kind: "ImageStream"})
	switch {
	case meta.IsNoMatchError(err):
		s.failed = &obstacle{reasonUnsupported, "spec.source.registry.imageStream names an ImageStream, and this cluster has no API " + groupStreams + ", which is OpenShift's; name the image by url"}
		return steps.ErrDone
	case err != nil:
		return fmt.Errorf("looking for API %s: %w", groupStreams, err)
	}
	return nil
}

// addPulled has the importer run in the image that holds the disk. So the kubelet pulls that, and the disk is a file,
// which can be read at any offset.
func addPulled(registry *cdiv1.DataVolumeSourceRegistry, pod *corev1.Pod, container *corev1.Container) {
	RunInImage(registry, pod, container)
	address := ptr.Deref(registry.URL, "")
	if registry.ImageStream != nil {
		address = schemeStream + *registry.ImageStream
	}
	container.Args = append(container.Args, "--url="+address, "--image-root=/")
}

// RunInImage has container, which runs /slipway of its own image, run in that of a registry, which the kubelet pulls. A
// disk's image brings no program: a container before it copies ours.
func RunInImage(registry *cdiv1.DataVolumeSourceRegistry, pod *corev1.Pod, container *corev1.Container) {
	program := path.Join(programDir, "slipway")
	addVolume(pod, volumeProgram, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	first := corev1.Container{
		Name: containerProgram, Image: container.Image, ImagePullPolicy: container.ImagePullPolicy,
		Command:   []string{container.Command[0], "copy-program", program},
		Resources: container.Resources, SecurityContext: container.SecurityContext,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	mount(&first, volumeProgram, programDir, false)
	pod.Spec.InitContainers = []corev1.Container{first}

	container.Image = strings.TrimPrefix(ptr.Deref(registry.URL, ""), schemeDocker)
	if registry.ImageStream != nil { // OpenShift puts the image there that it stands for
		container.Image = *registry.ImageStream
		setAll(&pod.Annotations, map[string]string{annotationLookup: "*"})
	}
	container.ImagePullPolicy = "" // Kubernetes' own rule, which is known: latest is asked for, another tag only where it is missing
	container.Command[0] = program
	container.WorkingDir = "/" // not the image's, which need not be there
	mount(container, volumeProgram, programDir, true)
	if registry.Platform != nil && registry.Platform.Architecture != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: registry.Platform.Architecture} // a node pulls what it can run
	}
	if secret := ptr.Deref(registry.SecretRef, ""); secret != "" {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: secret}}
	}
}

// programCondition says what keeps the importer's program from the image that the node pulls, if anything does.
func programCondition(s *scope, c *cdiv1.DataVolumeCondition) bool {
	for _, status := range s.pod.Status.InitContainerStatuses {
		ended := status.State.Terminated
		if ended == nil {
			ended = status.LastTerminationState.Terminated
		}
		waiting := status.State.Waiting
		switch {
		case ended != nil && ended.ExitCode != 0:
			c.Reason, c.Message = reasonError, fmt.Sprintf("the importer cannot be put into the image: %s; it is tried again", strings.TrimSpace(ended.Message))
			return true
		case ended == nil && waiting != nil && waiting.Message != "": // without one it only begins
			c.Reason, c.Message = waiting.Reason, fmt.Sprintf("Container %s: %s", status.Name, waiting.Message)
			return true
		}
	}
	return false
}
