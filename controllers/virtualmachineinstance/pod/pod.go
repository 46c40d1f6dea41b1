// Package pod turns a VirtualMachineInstance into the pods that it needs: the
// launcher pod that holds the virtual machine, and the provisioning pod that makes
// unbound claims bind before the launcher starts. It is pure: no client, no clock.
package pod

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// Values of names.LabelPod, which marks every pod that virt-controller watches.
const (
	KindLauncher    = "launcher"
	KindProvisioner = "provisioner"
	// KindAttachment holds the claim of a volume that came later, KindAttachmentTrigger is
	// the first consumer of one.
	KindAttachment        = "attachment"
	KindAttachmentTrigger = "attachment-trigger"
)

// AppLauncher is the value of the label kubevirt.io on launcher pods.
const AppLauncher = "virt-launcher"

// launcherGrace is how many seconds a pod gets beyond its VMI's own grace period, in
// which the launcher ends a guest that did not power off.
const launcherGrace = 15

// defaultGrace is the grace period in seconds of a VMI that names none.
const defaultGrace = 30

// Input is all that the pods of a VMI are made from.
type Input struct {
	VMI           *virtv1.VirtualMachineInstance
	LauncherImage string
	// ProvisionerImage holds /slipway; the provisioning pod runs it and ends.
	ProvisionerImage string
	PullPolicy       corev1.PullPolicy
	// PullSecrets are for both, in the VMI's namespace.
	PullSecrets []corev1.LocalObjectReference
	// KVM says whether the guest runs on hardware virtualization.
	KVM bool
	// VhostNet says whether a pod whose guest runs so may ask for /dev/vhost-net.
	VhostNet bool
	// ImageVolumes says that images of container disks are volumes of the pod, and not init containers.
	ImageVolumes bool
	// CPURatio is how many virtual CPUs share one physical, KubeVirt's cpuAllocationRatio.
	CPURatio int64
	// MemoryOvercommit is guest memory as a percentage of what is requested, KubeVirt's memoryOvercommit.
	MemoryOvercommit int64
	// OverheadRatio is by what the computed overhead of memory is multiplied, KubeVirt's
	// additionalGuestMemoryOverheadRatio; zero is the same as 1.
	OverheadRatio float64
	// LimitCPU holds a pod whose VMI names no limit to its virtual CPUs, as KubeVirt's autoCPULimitNamespaceLabelSelector asks.
	LimitCPU bool
	// Seccomp is the launcher pod's profile; nil for the runtime's.
	Seccomp *corev1.SeccompProfile
	// RuntimeClass is the launcher pod's; empty for the nodes' default.
	RuntimeClass string
	// NodeSelectors are labels of nodes on which launchers may run, beside those that the VMI names, which come first:
	// KubeVirt's developerConfiguration.nodeSelectors.
	NodeSelectors map[string]string
	// LogVerbosity is how much the launcher logs unless the VMI says it; 0 when nothing is said.
	LogVerbosity uint
	// Claims are the persistent volume claims by the name of the VMI's volume.
	Claims map[string]Claim
	// AttachmentResources are those of the container of pods that hold claims that came later.
	AttachmentResources corev1.ResourceRequirements
	// State is the name of the claim of what the VM keeps beside its disks; empty for none.
	State string
}

// Claim is a persistent volume claim that a VMI's volume uses.
type Claim struct {
	Name     string
	Block    bool
	ReadOnly bool
	// Base says that the claim's disk is under an overlay, so that nobody writes to it.
	Base bool
}

// Launcher returns the launcher pod of in.VMI.
func Launcher(in Input) (*corev1.Pod, error) {
	compute, err := computeContainer(in)
	if err != nil {
		return nil, fmt.Errorf("building the launcher pod of %s/%s: %w", in.VMI.Namespace, in.VMI.Name, err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            Name(in.VMI, KindLauncher),
			Namespace:       in.VMI.Namespace,
			Labels:          launcherLabels(in.VMI),
			Annotations:     launcherAnnotations(in.VMI),
			OwnerReferences: ownedBy(in.VMI),
		},
		Spec: placement(in),
	}
	spec := &pod.Spec
	spec.Containers = []corev1.Container{compute}
	spec.InitContainers = containerDiskInits(in)
	guaranteeInits(in.VMI, spec.InitContainers)
	spec.Volumes = volumes(in)
	spec.ImagePullSecrets = pullSecrets(in)
	spec.TerminationGracePeriodSeconds = new(GracePeriod(in.VMI) + launcherGrace)
	spec.Hostname = Hostname(in.VMI)
	spec.Subdomain = in.VMI.Spec.Subdomain
	spec.DNSPolicy = in.VMI.Spec.DNSPolicy
	spec.DNSConfig = in.VMI.Spec.DNSConfig
	spec.ServiceAccountName = serviceAccount(in.VMI)
	if in.Seccomp != nil {
		spec.SecurityContext.SeccompProfile = in.Seccomp
	}
	if in.RuntimeClass != "" {
		spec.RuntimeClassName = &in.RuntimeClass
	}
	mergeNodeSelector(spec, map[string]string{virtv1.NodeSchedulable: "true"})
	if in.KVM { // emulation has what the node's processor has not
		mergeNodeSelector(spec, ProcessorLabels(in.VMI))
	}
	return pod, nil
}

// GracePeriod returns how many seconds the guest has to power off by itself.
func GracePeriod(vmi *virtv1.VirtualMachineInstance) int64 {
	return ptr.Deref(vmi.Spec.TerminationGracePeriodSeconds, defaultGrace)
}

// DeletionGrace returns the grace period in seconds with which vmi's pod is deleted.
func DeletionGrace(vmi *virtv1.VirtualMachineInstance) int64 {
	return GracePeriod(vmi) + launcherGrace
}

// Hostname returns the host name of the pod and the guest: the VMI's own, or one
// made from its name, which may be longer than a host name and hold dots.
func Hostname(vmi *virtv1.VirtualMachineInstance) string {
	if vmi.Spec.Hostname != "" {
		return vmi.Spec.Hostname
	}
	name, _, _ := strings.Cut(vmi.Name, ".")
	if len(name) > 63 {
		name = name[:63]
	}
	return strings.TrimRight(name, "-")
}

// placement is the part of a pod's spec that says where and as whom it runs.
func placement(in Input) corev1.PodSpec {
	vmi := in.VMI
	spec := corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever,
		EnableServiceLinks:           new(false),
		AutomountServiceAccountToken: new(false),
		NodeSelector:                 maps.Clone(in.NodeSelectors),
		Affinity:                     vmi.Spec.Affinity,
		Tolerations:                  vmi.Spec.Tolerations,
		TopologySpreadConstraints:    vmi.Spec.TopologySpreadConstraints,
		SchedulerName:                vmi.Spec.SchedulerName,
		PriorityClassName:            vmi.Spec.PriorityClassName,
		ImagePullSecrets:             slices.Clone(in.PullSecrets),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser:           ptr.To[int64](names.QEMUUser),
			RunAsGroup:          ptr.To[int64](names.QEMUUser),
			RunAsNonRoot:        new(true),
			FSGroup:             ptr.To[int64](names.QEMUUser),
			FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	if len(vmi.Spec.NodeSelector) > 0 {
		mergeNodeSelector(&spec, vmi.Spec.NodeSelector)
	}
	if arch := vmi.Spec.Architecture; arch != "" {
		mergeNodeSelector(&spec, map[string]string{corev1.LabelArchStable: arch})
	}
	if labels := nodeLabels(vmi); len(labels) > 0 {
		mergeNodeSelector(&spec, labels)
	}
	return spec
}

func mergeNodeSelector(spec *corev1.PodSpec, more map[string]string) {
	if spec.NodeSelector == nil {
		spec.NodeSelector = map[string]string{}
	}
	maps.Copy(spec.NodeSelector, more)
}

// launcherLabels are the VMI's own, so that Services select the pod, and ours.
func launcherLabels(vmi *virtv1.VirtualMachineInstance) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, vmi.Labels)
	labels[virtv1.AppLabel] = AppLauncher
	labels[virtv1.CreatedByLabel] = string(vmi.UID)
	labels[names.LabelVMName] = labelValue(vmi.Name)
	labels[names.LabelPod] = KindLauncher
	delete(labels, virtv1.NodeNameLabel)
	return labels
}

// labelValue shortens name to what fits a label.
func labelValue(name string) string {
	if len(name) > 63 {
		name = name[:63]
	}
	return strings.TrimRight(name, "-._")
}

func launcherAnnotations(vmi *virtv1.VirtualMachineInstance) map[string]string {
	annotations := map[string]string{}
	for key, value := range vmi.Annotations {
		if key != corev1.LastAppliedConfigAnnotation {
			annotations[key] = value
		}
	}
	annotations[virtv1.DomainAnnotation] = vmi.Name
	annotations["kubectl.kubernetes.io/default-container"] = names.ComputeContainer
	return annotations
}

func ownedBy(vmi *virtv1.VirtualMachineInstance) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(vmi, virtv1.VirtualMachineInstanceGroupVersionKind)}
}

// launcherEnv tells the launcher how much to log, where somebody says it.
func launcherEnv(in Input) []corev1.EnvVar {
	level := in.VMI.Labels[names.LogVerbosityLabel]
	if level == "" && in.LogVerbosity > 0 {
		level = strconv.FormatUint(uint64(in.LogVerbosity), 10)
	}
	if level == "" {
		return nil
	}
	return []corev1.EnvVar{{Name: names.EnvLauncherVerbosity, Value: level}}
}

func launcherArgs(vmi *virtv1.VirtualMachineInstance) []string {
	return []string{
		"--name", vmi.Name,
		"--namespace", vmi.Namespace,
		"--uid", string(vmi.UID),
		"--grace-period-seconds", strconv.FormatInt(GracePeriod(vmi), 10),
	}
}
