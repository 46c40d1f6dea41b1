package hostpathprovisioner

import (
	"context"
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
)

// volumes are those of the driver, listed once in a pass, by a pass that asks for them.
func (r *Reconciler) volumes(ctx context.Context, s *scope) ([]corev1.PersistentVolume, error) {
	if s.ofDriver != nil {
		return s.ofDriver, nil
	}
	var all corev1.PersistentVolumeList
	if err := r.live.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing persistent volumes: %w", err)
	}
	s.ofDriver = slices.DeleteFunc(append([]corev1.PersistentVolume{}, all.Items...), func(v corev1.PersistentVolume) bool {
		return v.Spec.CSI == nil || v.Spec.CSI.Driver != names.HostPathDriver
	})
	return s.ofDriver, nil
}

// usedVolume names a volume in a pool on a node that a claim has or may get, "" when there is none.
func (r *Reconciler) usedVolume(ctx context.Context, s *scope, h holder) (string, error) {
	volumes, err := r.volumes(ctx, s)
	if err != nil {
		return "", err
	}
	for i := range volumes {
		phase := volumes[i].Status.Phase
		if labelOf(&volumes[i]) == h.pool.Label() && onNode(&volumes[i], h.node.Name) && phase != corev1.VolumeReleased && phase != corev1.VolumeFailed {
			return volumes[i].Name, nil
		}
	}
	return "", nil
}

// dismiss deletes the Deployments that are not wanted any more, but not one whose claim holds volumes or snapshots, by which
// its node knows the pool: volumes may be in use, and their data is to be deleted.
func (r *Reconciler) dismiss(ctx context.Context, s *scope, existing []appsv1.Deployment, wanted map[string]bool, nodes []corev1.Node) error {
	for i := range existing {
		deployment := &existing[i]
		if wanted[deployment.Name] || deployment.DeletionTimestamp != nil {
			continue
		}
		held, err := r.heldBy(ctx, s, deployment, nodes)
		if err != nil {
			return err
		}
		if held != "" {
			s.wait(ReasonVolumes, fmt.Sprintf("Deployment %s/%s is not asked for any more and stays, since its claim has volumes or snapshots, such as %s: delete their claims and VolumeSnapshots, or name its pool and node again",
				deployment.Namespace, deployment.Name, held))
			s.retry = true
			s.staying = append(s.staying, deployment.Labels[names.LabelStoragePool])
			continue
		}
		if err := r.Delete(ctx, deployment); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the Deployment %s of a storage pool: %w", deployment.Name, err)
		}
	}
	return nil
}

// heldBy names a volume or snapshot in the claim that a Deployment holds, "" when there is none or its node is gone.
func (r *Reconciler) heldBy(ctx context.Context, s *scope, deployment *appsv1.Deployment, nodes []corev1.Node) (string, error) {
	node, label := deployment.Annotations[annotationNode], deployment.Labels[names.LabelStoragePool]
	if s.ending() || !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == node }) {
		return "", nil
	}
	return r.left(ctx, s, label, node)
}

// left names a volume or snapshot in the pool of a label on a node, "" when there is none.
func (r *Reconciler) left(ctx context.Context, s *scope, label, node string) (string, error) {
	volumes, err := r.volumes(ctx, s)
	if err != nil {
		return "", err
	}
	pools := map[string]string{} // labels by the volumes' handles
	for i := range volumes {
		if !onNode(&volumes[i], node) {
			continue
		}
		if pools[volumes[i].Spec.CSI.VolumeHandle] = labelOf(&volumes[i]); labelOf(&volumes[i]) == label {
			return volumes[i].Name, nil
		}
	}
	var contents snapshotv1.VolumeSnapshotContentList
	err = r.live.List(ctx, &contents, client.MatchingLabels{labelSnapshotNode: node})
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("listing snapshots: %w", err)
	}
	for i := range contents.Items {
		spec := &contents.Items[i].Spec
		if spec.Driver != names.HostPathDriver {
			continue
		}
		// Nothing says of which pool a volume was that is gone: it may have been of this one.
		if pool, known := pools[handleOf(spec)]; !known || pool == label {
			return contents.Items[i].Name, nil
		}
	}
	return "", nil
}

// labelSnapshotNode of a VolumeSnapshotContent names the node that has the snapshot.
const labelSnapshotNode = "snapshot.storage.kubernetes.io/managed-by"

// handleOf is the handle of the volume that a snapshot was taken of, "" when it is not told.
func handleOf(spec *snapshotv1.VolumeSnapshotContentSpec) string {
	if spec.Source.VolumeHandle == nil {
		return ""
	}
	return *spec.Source.VolumeHandle
}

// recall finds the pools that are not asked for any more, and have volumes, which no node finds.
func (r *Reconciler) recall(ctx context.Context, s *scope) error {
	if s.deleting() {
		return nil
	}
	asked := s.object.Spec.Pools()
	for _, before := range s.object.Status.StoragePoolStatuses {
		if slices.ContainsFunc(asked, func(p hppv1beta1.StoragePool) bool { return p.Name == before.Name }) {
			continue
		}
		volumes, err := r.volumes(ctx, s)
		if err != nil {
			return err
		}
		label := hppv1beta1.StoragePool{Name: before.Name}.Label()
		at := slices.IndexFunc(volumes, func(v corev1.PersistentVolume) bool { return labelOf(&v) == label })
		if at < 0 {
			continue
		}
		s.recalled, s.retry = append(s.recalled, before.Name), true
		if !slices.Contains(s.staying, label) {
			s.degrade(ReasonVolumes, fmt.Sprintf("storage pool %s is not asked for any more and has volumes, such as %s, which can be neither used nor deleted: name it again as it was, and delete their claims first",
				before.Name, volumes[at].Name))
		}
	}
	return nil
}

// labelOf is the Label of the pool that has a volume of the driver.
func labelOf(volume *corev1.PersistentVolume) string {
	return hppv1beta1.StoragePool{Name: volume.Spec.CSI.VolumeAttributes[parameterPool]}.Label()
}

func onNode(volume *corev1.PersistentVolume, node string) bool {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return false
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == names.TopologyNode && slices.Contains(expression.Values, node) {
				return true
			}
		}
	}
	return false
}
