package hostpathprovisioner

import (
	"cmp"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
)

// kindHolder is the value of names.LabelPod on pods that hold the claims of pools.
const kindHolder = "storage-pool"

// Labels and annotations: labelClaim tells the pods of a Deployment from those of the pool's others, and
// annotationNode says of a Deployment for which node it is.
const (
	labelApp       = "k8s-app"
	labelClaim     = names.Domain + "storage-pool-claim"
	annotationNode = names.Domain + "node"
)

// volumeHeld is the name of the claim's volume in its pod, containerHolder that of the one container: the field's.
// folderHeld is the empty folder in the claim, made by the kubelet, that the container has of it.
const (
	volumeHeld      = "data"
	containerHolder = "mounter"
	folderHeld      = ".slipway/hold"
)

// holder is a pool that lies on claims, on one node.
type holder struct {
	pool hppv1beta1.StoragePool
	node *corev1.Node
}

// name is what the claim and the Deployment are called.
func (h holder) name() string { return h.pool.ClaimName(h.node.Name) }

func (h holder) labels() map[string]string {
	all := labels()
	maps.Copy(all, map[string]string{labelApp: component, names.LabelStoragePool: h.pool.Label()})
	return all
}

// claim is what the pool lies on on the node. It is nobody's: it stays, with what is in it, when the pool
// goes, until somebody deletes it.
func (h holder) claim(namespace string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: h.name(), Labels: h.labels()},
		Spec:       *h.pool.PVCTemplate.DeepCopy(),
	}
}

// deployment is what keeps the claim mounted on the node, as long as there may be volumes in it. Its pod
// may do nothing, and does nothing: virt-handler finds the mount where the kubelet has it. A new pod comes before the
// old one goes, so that the claim's driver never takes it from the node. It has no owner, for garbage collection would take it while
// the object is being deleted and volumes in the claim are in use: dismiss deletes it.
func (h holder) deployment(owner *hppv1beta1.HostPathProvisioner, options Options) *appsv1.Deployment {
	pods := map[string]string{names.LabelPoolPod: h.pool.Label(), labelClaim: h.name()}
	own := maps.Clone(pods)
	own[names.LabelPod], own[names.LabelStoragePool] = kindHolder, h.pool.Label()
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: options.Namespace, Name: h.name(), Labels: h.labels(),
			Annotations: map[string]string{annotationNode: h.node.Name},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), RevisionHistoryLimit: ptr.To[int32](2),
			Selector: &metav1.LabelSelector{MatchLabels: pods},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1))},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: own},
				Spec:       h.pod(owner.Spec.ImagePullPolicy, options.Image),
			},
		},
	}
}

// pod is on the node whatever taints that has: its volumes are there.
func (h holder) pod(pull corev1.PullPolicy, image string) corev1.PodSpec {
	hostname := h.node.Labels[corev1.LabelHostname]
	if hostname == "" {
		hostname = h.node.Name
	}
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		PriorityClassName:             "kubevirt-cluster-critical",
		TerminationGracePeriodSeconds: ptr.To[int64](15), // of which /slipway hold uses 12
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{hostname}},
			}}},
		}}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: ptr.To[int64](1001), RunAsGroup: ptr.To[int64](1001),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: containerHolder, Image: image, ImagePullPolicy: cmp.Or(pull, corev1.PullIfNotPresent),
			Command: []string{"/slipway", "hold"},
			Env:     []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "24MiB"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("30Mi"),
			}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			// Not the claim's root: where SELinux enforces, the runtime labels all that a container has mounted as this pod's own,
			// and each new pod would take their disks from the guests.
			VolumeMounts: []corev1.VolumeMount{{Name: volumeHeld, MountPath: h.pool.Path, SubPath: folderHeld, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: volumeHeld, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: h.name()},
		}}},
	}
}
