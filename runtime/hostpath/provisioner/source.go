package provisioner

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Kinds of data sources that are the driver's: to clone a claim, to restore a snapshot.
const (
	kindClaim    = "PersistentVolumeClaim"
	kindSnapshot = "VolumeSnapshot"
)

// source is what the claim's volume gets its data from; nil: it begins empty.
func (p *Provisioner) source(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*csi.VolumeContentSource, error) {
	from := claim.Spec.DataSourceRef
	if from == nil && claim.Spec.DataSource != nil {
		from = &corev1.TypedObjectReference{
			APIGroup: claim.Spec.DataSource.APIGroup, Kind: claim.Spec.DataSource.Kind, Name: claim.Spec.DataSource.Name,
		}
	}
	switch {
	case from == nil:
		return nil, nil
	case from.Namespace != nil && *from.Namespace != claim.Namespace:
		return nil, refuse(codes.InvalidArgument, "the data source is in namespace %s: a volume can be cloned within its own namespace only", *from.Namespace)
	case from.Kind == kindClaim && (from.APIGroup == nil || *from.APIGroup == ""):
		return p.clone(ctx, claim, from.Name)
	case from.Kind == kindSnapshot && from.APIGroup != nil && *from.APIGroup == snapshotv1.GroupName:
		return p.restore(ctx, claim, from.Name)
	default:
		return nil, &controller.IgnoredError{Reason: fmt.Sprintf("a data source of kind %s is not the driver's: its own controller fills the volume", from.Kind)}
	}
}

// clone finds the volume of the claim called name, which the new one gets its data from.
func (p *Provisioner) clone(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) (*csi.VolumeContentSource, error) {
	source, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the claim %s to clone: %w", name, err)
	}
	switch {
	case source.DeletionTimestamp != nil:
		return nil, refuse(codes.FailedPrecondition, "the claim %s to clone is being deleted: clone another", name)
	case source.Spec.VolumeName == "" || source.Status.Phase != corev1.ClaimBound:
		return nil, refuse(codes.FailedPrecondition, "the claim %s to clone is not bound: wait until it is", name)
	}
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, source.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the volume of the claim %s to clone: %w", name, err)
	}
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != p.options.Driver {
		return nil, refuse(codes.InvalidArgument, "the volume of the claim %s to clone is not of %s: choose that claim's StorageClass", name, p.options.Driver)
	}
	if on := NodeOf(volume, p.options.TopologyKey); on != p.options.NodeName {
		return nil, refuse(codes.Unavailable, "the claim %s to clone is on node %s, the new one is to be on %s: let its pod run on %s", name, on, p.options.NodeName, on)
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: volume.Spec.CSI.VolumeHandle},
	}}, nil
}
