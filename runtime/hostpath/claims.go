package hostpath

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/hostpath/driver"
)

// readTimeout bounds the reading of a claim and its volume.
const readTimeout = 10 * time.Second

// place is where a pool is: its directory, or where the kubelet has mounted the volume of the claim
// that it lies on for the pod that holds it here.
func (p *pools) place(ctx context.Context, pool hppv1beta1.StoragePool) driver.Place {
	if pool.PVCTemplate == nil {
		return driver.Place{Path: pool.Path}
	}
	claim := types.NamespacedName{Namespace: p.options.Namespace, Name: pool.ClaimName(p.options.NodeName)}
	waiting := driver.Place{Claim: claim.String()}
	holder := p.holder(pool.Label(), claim.Name)
	if holder == nil {
		return waiting
	}
	if known, ok := p.mounts[holder.UID]; ok {
		return known
	}
	volume, err := p.volume(ctx, claim)
	if err != nil {
		p.options.Log.Error(err, "A storage pool is not known yet", "pool", pool.Name)
		return waiting
	}
	found := mountOf(p.options.KubeletRoot, holder.UID, volume)
	found.Claim = claim.String()
	p.mounts[holder.UID] = found
	return found
}

// placeHeld adds the pools whose claims pods hold here, asked for or not: as long as there are volumes in a claim,
// virt-controller has its pod stay, and they can be used, and are to be deleted. While the pod does not run, such a pool
// waits for its claim: what is in it would be taken for deleted if the node did not know the pool.
func (p *pools) placeHeld(ctx context.Context, places map[string]driver.Place) {
	for _, item := range p.pods.GetStore().List() {
		pod, ok := item.(*corev1.Pod)
		if !ok {
			continue
		}
		name, ofPool := strings.CutSuffix(pod.Labels[names.LabelPoolPod], hppv1beta1.StoragePool{}.Label())
		pool := hppv1beta1.StoragePool{Name: name, PVCTemplate: &corev1.PersistentVolumeClaimSpec{}}
		if ofPool && mounts(pod, pool.ClaimName(p.options.NodeName)) {
			places[name] = p.place(ctx, pool)
		}
	}
}

// holder returns the pod that holds a claim, nil when none does. While one takes another's place, it is the younger.
func (p *pools) holder(label, claim string) *corev1.Pod {
	var holder *corev1.Pod
	there := map[types.UID]bool{}
	for _, item := range p.pods.GetStore().List() {
		pod, ok := item.(*corev1.Pod)
		if !ok {
			continue
		}
		there[pod.UID] = true
		if pod.Labels[names.LabelPoolPod] != label || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || !mounts(pod, claim) {
			continue
		}
		if holder == nil || holder.CreationTimestamp.Before(&pod.CreationTimestamp) {
			holder = pod
		}
	}
	for uid := range p.mounts {
		if !there[uid] {
			delete(p.mounts, uid)
		}
	}
	return holder
}

func mounts(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// volume reads the volume that a claim is bound to.
func (p *pools) volume(ctx context.Context, key types.NamespacedName) (*corev1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	claim, err := p.client.CoreV1().PersistentVolumeClaims(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the claim %s: %w", key, err)
	}
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the volume of the claim %s: %w", key, err)
	}
	return volume, nil
}

// mountOf is where a volume is on the node while a pod has it. The kubelet mounts it in the pod's folder, by
// the rules of the kind's plugin; but a hostPath is where it is. In-tree kinds that are not told
// apart here are CSI drivers' by now.
func mountOf(kubeletRoot string, pod types.UID, volume *corev1.PersistentVolume) driver.Place {
	folder := filepath.Join(kubeletRoot, "pods", string(pod), "volumes")
	switch source := volume.Spec.PersistentVolumeSource; {
	case source.HostPath != nil:
		return driver.Place{Path: filepath.Clean(source.HostPath.Path)}
	case source.Local != nil:
		return driver.Place{Path: filepath.Join(folder, "kubernetes.io~local-volume", volume.Name), Mount: true}
	case source.ISCSI != nil:
		return driver.Place{Path: filepath.Join(folder, "kubernetes.io~iscsi", volume.Name), Mount: true}
	case source.FC != nil:
		return driver.Place{Path: filepath.Join(folder, "kubernetes.io~fc", volume.Name), Mount: true}
	case source.NFS != nil:
		return driver.Place{Path: filepath.Join(folder, "kubernetes.io~nfs", volume.Name), Mount: true}
	default:
		return driver.Place{Path: filepath.Join(folder, "kubernetes.io~csi", volume.Name, "mount"), Mount: true}
	}
}
