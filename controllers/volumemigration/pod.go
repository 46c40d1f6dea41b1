package volumemigration

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/internal/names"
)

// KindPod is the value of names.LabelPod on the pods that copy, and on those by which claims get bound before.
const KindPod = "volume-migration"

const (
	containerCopy = "copy"
	prefixCopy    = "migrate-"
	prefixBind    = "bind-"
	maxPodName    = 63 // a pod's name becomes its host name
)

// PodName is the name of the pod that copies onto the claim of the name: there is one at a time, whoever makes it.
func PodName(claim string) string { return shortened(prefixCopy + claim) }

// BinderName is that of the pod by which the claim gets bound.
func BinderName(claim string) string { return shortened(prefixBind + claim) }

func shortened(name string) string {
	if len(name) <= maxPodName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxPodName-9] + "-" + hex.EncodeToString(sum[:4])
}

// PodInput is all that a pod is built from.
type PodInput struct {
	VM             *virtv1.VirtualMachine
	Move           Move
	Source, Target *corev1.PersistentVolumeClaim
	// Token is the password of the copy's progress.
	Token string
	// Image holds /slipway. Workload is where pods run and how the image is pulled and how much is logged, Resources what this one asks for and may have.
	Image     string
	Workload  cdiconfig.Workload
	Resources corev1.ResourceRequirements
	// Binder is a pod whose only work is that Target gets bound, where Source can be had too. It copies nothing.
	Binder bool
}

// Pod returns the pod that copies the disk of one claim onto another: one container, no privilege, no token. It reads the source, and
// has no right to write to it.
func Pod(in PodInput) (*corev1.Pod, error) {
	record, err := in.Move.record(in.VM.UID, in.Source).String()
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: PodName(in.Move.To), Namespace: in.VM.Namespace,
			Labels: map[string]string{
				names.LabelPod: KindPod, virtv1.CreatedByLabel: string(in.VM.UID),
				names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "storage",
			},
			Annotations:     map[string]string{AnnotationRecord: record},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(in.VM, virtv1.VirtualMachineGroupVersionKind)},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyOnFailure,
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			SecurityContext:               datavolume.PodSecurity(),
			TerminationGracePeriodSeconds: ptr.To[int64](5),
		},
	}
	container := corev1.Container{
		Name: containerCopy, Image: in.Image, ImagePullPolicy: cmp.Or(in.Workload.PullPolicy, corev1.PullIfNotPresent),
		Command:   []string{"/slipway", "import"},
		Args:      []string{"--termination-log=" + corev1.TerminationMessagePathDefault},
		Resources: in.Resources, SecurityContext: datavolume.ContainerSecurity(),
	}
	datavolume.AddCopyTarget(in.Target, pod, &container)
	datavolume.AddCopySource(in.Source, pod, &container)
	progress.Serve(&container, in.Token)
	container.Args = append(container.Args, in.Workload.LogArgs()...)
	switch {
	case in.Binder:
		pod.Name, pod.Annotations[names.AnnotationTemp] = BinderName(in.Move.To), "true"
		container.Command, container.Args, container.Env, container.Ports = []string{"/slipway", "version"}, nil, nil, nil
	case in.Target.Annotations[datavolume.AnnotationPreallocated] == "true":
		container.Args = append(container.Args, "--preallocate")
	}
	pod.Spec.Containers = []corev1.Container{container}
	in.Workload.Place(&pod.Spec)
	return pod, nil
}
