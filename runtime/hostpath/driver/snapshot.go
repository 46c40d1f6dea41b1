package driver

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

// sourceOf is what a volume's record says of where its data came from.
func sourceOf(from *csi.VolumeContentSource) string {
	if volume := from.GetVolume(); volume != nil {
		return pool.VolumeSource(volume.GetVolumeId())
	}
	if snapshot := from.GetSnapshot(); snapshot != nil {
		return pool.SnapshotSource(snapshot.GetSnapshotId())
	}
	return ""
}

// openSource opens the data of a volume or snapshot of any pool, and keeps it from
// being deleted until release.
func (d *Driver) openSource(from *csi.VolumeContentSource) (*pool.Content, func(), error) {
	if snapshot := from.GetSnapshot(); snapshot != nil {
		return d.openContent(snapshotKey(snapshot.GetSnapshotId()), snapshot.GetSnapshotId(), (*pool.Pool).Snapshot, (*pool.Pool).OpenSnapshot)
	}
	return d.openVolume(from.GetVolume().GetVolumeId())
}

func (d *Driver) openVolume(name string) (*pool.Content, func(), error) {
	content, release, err := d.openContent(name, name, (*pool.Pool).Volume, (*pool.Pool).OpenVolume)
	if err != nil || !content.Record.Block {
		return content, release, err
	}
	// A block device in use holds data in memory that its file does not have yet.
	if err := d.options.Devices.Flush(content.File); err != nil {
		release()
		return nil, nil, err
	}
	return content, release, nil
}

func (d *Driver) openContent(key, name string, lookup func(*pool.Pool, string) (pool.Record, error),
	open func(*pool.Pool, string) (*pool.Content, error),
) (*pool.Content, func(), error) {
	unlock, err := d.locks.read(key)
	if err != nil {
		return nil, nil, err
	}
	p, _, err := d.find(name, lookup)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	defer d.close(p)
	content, err := open(p, name)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	content.OnClaim = d.options.Pools.Pools()[p.Name()].Mount
	return content, func() { d.close(content); unlock() }, nil
}

// snapshotKey is a snapshot's key of locks; no volume's name has a colon.
func snapshotKey(name string) string { return pool.SnapshotSource(name) }

// CreateSnapshot keeps the data of a volume as it is now, in the volume's pool.
func (d *Driver) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if req.GetName() == "" || req.GetSourceVolumeId() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request names no snapshot or no source volume")
	}
	for key := range req.GetParameters() {
		return nil, status.Errorf(codes.InvalidArgument, "parameter %s is not supported: leave it out of the VolumeSnapshotClass", key)
	}
	release, err := d.locks.change(snapshotKey(req.GetName()))
	if err != nil {
		return nil, err
	}
	defer release()
	record, err := d.snapshot(ctx, req.GetName(), req.GetSourceVolumeId())
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.CreateSnapshotResponse{Snapshot: described(record)}, nil
}

// described is what the API says of a snapshot, which is complete as soon as it is there.
func described(record pool.Record) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: record.Name, SourceVolumeId: pool.SourceVolume(record.Source), SizeBytes: record.Capacity,
		CreationTime: timestamppb.New(record.Created), ReadyToUse: true,
	}
}

// GetSnapshot describes a snapshot of this node.
func (d *Driver) GetSnapshot(_ context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request names no snapshot")
	}
	p, record, err := d.find(req.GetSnapshotId(), (*pool.Pool).Snapshot)
	if err != nil {
		return nil, asStatus(err)
	}
	d.close(p)
	return &csi.GetSnapshotResponse{Snapshot: described(record)}, nil
}

// HasVolume says whether a volume is on this node. It is no call of CSI.
func (d *Driver) HasVolume(volume string) (bool, error) {
	p, _, err := d.find(volume, (*pool.Pool).Volume)
	switch {
	case errors.Is(err, pool.ErrNotFound) || errors.Is(err, pool.ErrName):
		return false, nil
	case err != nil:
		return false, asStatus(err)
	}
	d.close(p)
	return true, nil
}

func (d *Driver) snapshot(ctx context.Context, name, volume string) (pool.Record, error) {
	found, record, err := d.find(name, (*pool.Pool).Snapshot)
	if err == nil {
		d.close(found)
		if record.Source != pool.VolumeSource(volume) {
			return record, status.Errorf(codes.AlreadyExists, "snapshot %s exists, of %s", name, record.Source)
		}
		return record, nil
	}
	// A pool that cannot be searched does not matter, as long as it is not the volume's.
	p, _, missing := d.find(volume, (*pool.Pool).Volume)
	if missing != nil && !errors.Is(err, pool.ErrNotFound) {
		return record, err
	}
	if missing != nil {
		return record, missing
	}
	defer d.close(p)
	source, release, err := d.openVolume(volume)
	if err != nil {
		return record, err
	}
	defer release()
	record, result, err := p.CreateSnapshot(ctx, name, &pool.Copy{From: source, Progress: d.progress(volume, name)})
	if err == nil {
		d.options.Log.Info("Made a snapshot", "snapshot", name, "volume", volume,
			"filesShared", result.Shared, "filesCopied", result.Copied, "bytesCopied", result.Bytes)
	}
	return record, err
}

// DeleteSnapshot removes a snapshot; volumes made from it keep their data.
func (d *Driver) DeleteSnapshot(_ context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request names no snapshot")
	}
	release, err := d.locks.change(snapshotKey(req.GetSnapshotId()))
	if err != nil {
		return nil, err
	}
	defer release()
	p, record, err := d.find(req.GetSnapshotId(), (*pool.Pool).Snapshot)
	if errors.Is(err, pool.ErrName) { // a person wrote it; there never was such a snapshot
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if errors.Is(err, pool.ErrNotFound) {
		return &csi.DeleteSnapshotResponse{}, d.finishDeletion(req.GetSnapshotId(), (*pool.Pool).DeleteSnapshot)
	}
	if err != nil {
		return nil, asStatus(err)
	}
	defer d.close(p)
	if err := p.DeleteSnapshot(record.Name); err != nil {
		return nil, asStatus(err)
	}
	d.options.Log.Info("Deleted a snapshot", "snapshot", record.Name)
	return &csi.DeleteSnapshotResponse{}, nil
}
