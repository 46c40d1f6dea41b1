package provisioner

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// labelManagedBy names the node whose snapshotter alone works on a VolumeSnapshotContent.
const labelManagedBy = "snapshot.storage.kubernetes.io/managed-by"

// restore finds the data of the VolumeSnapshot called name, which the new volume gets.
func (p *Provisioner) restore(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) (*csi.VolumeContentSource, error) {
	content, err := p.content(ctx, claim.Namespace, name)
	if err != nil {
		return nil, err
	}
	if content.Spec.Driver != p.options.Driver {
		return nil, refuse(codes.InvalidArgument, "the VolumeSnapshot %s is of driver %s: choose a StorageClass of that driver", name, content.Spec.Driver)
	}
	if on := content.Labels[labelManagedBy]; on != p.options.NodeName {
		return nil, refuse(codes.Unavailable, "the VolumeSnapshot %s is on node %s, the new claim is to be on %s: let its pod run on %s", name, on, p.options.NodeName, on)
	}
	mode := ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	if was := content.Spec.SourceVolumeMode; was != nil && *was != mode {
		return nil, refuse(codes.InvalidArgument, "the VolumeSnapshot %s is of a %s volume, the claim asks for %s: ask for volumeMode %s", name, *was, mode, *was)
	}
	if asked, needed := claim.Spec.Resources.Requests.Storage(), ptr.Deref(content.Status.RestoreSize, 0); asked.Value() < needed {
		return nil, refuse(codes.OutOfRange, "the VolumeSnapshot %s has %d bytes, the claim asks for %d: ask for at least %s",
			name, needed, asked.Value(), resource.NewQuantity(needed, resource.BinarySI))
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: *content.Status.SnapshotHandle},
	}}, nil
}

// content returns the content of a VolumeSnapshot that is ready, bound both ways.
func (p *Provisioner) content(ctx context.Context, namespace, name string) (*snapshotv1.VolumeSnapshotContent, error) {
	snapshot, content := &snapshotv1.VolumeSnapshot{}, &snapshotv1.VolumeSnapshotContent{}
	err := p.snapshots.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, snapshot)
	switch {
	case meta.IsNoMatchError(err):
		return nil, refuse(codes.FailedPrecondition, "the cluster has no VolumeSnapshots: clone a claim instead")
	case apierrors.IsNotFound(err):
		return nil, refuse(codes.NotFound, "the VolumeSnapshot %s does not exist: create it, or name another", name)
	case err != nil:
		return nil, fmt.Errorf("reading the VolumeSnapshot %s: %w", name, err)
	case snapshot.DeletionTimestamp != nil:
		return nil, refuse(codes.FailedPrecondition, "the VolumeSnapshot %s is being deleted: name another", name)
	}
	status := ptr.Deref(snapshot.Status, snapshotv1.VolumeSnapshotStatus{})
	if bound := ptr.Deref(status.BoundVolumeSnapshotContentName, ""); bound == "" || !ptr.Deref(status.ReadyToUse, false) {
		return nil, refuse(codes.FailedPrecondition, "the VolumeSnapshot %s is not ready to use: %s", name, waitsFor(status.Error))
	}
	if err := p.snapshots.Get(ctx, client.ObjectKey{Name: *status.BoundVolumeSnapshotContentName}, content); err != nil {
		return nil, fmt.Errorf("reading the content of the VolumeSnapshot %s: %w", name, err)
	}
	if content.Spec.VolumeSnapshotRef.UID != snapshot.UID || content.Status == nil || content.Status.SnapshotHandle == nil {
		return nil, refuse(codes.FailedPrecondition, "VolumeSnapshotContent %s does not hold the VolumeSnapshot %s: name another VolumeSnapshot", content.Name, name)
	}
	return content, nil
}

// waitsFor says what a snapshot that is not ready waits for.
func waitsFor(e *snapshotv1.VolumeSnapshotError) string {
	if e != nil && ptr.Deref(e.Message, "") != "" {
		return *e.Message
	}
	return "wait until it is"
}
