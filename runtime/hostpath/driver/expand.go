package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

// ControllerExpandVolume makes a volume larger, also while it is in use: here controller and node are one, so
// nothing is left for the node to do. A volume that is as large already is no error.
func (d *Driver) ControllerExpandVolume(_ context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request names no volume")
	}
	if req.GetCapacityRange() == nil {
		return nil, status.Errorf(codes.InvalidArgument, "the request names no size")
	}
	size, err := d.expand(req.GetVolumeId(), req.GetCapacityRange())
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size}, nil
}

// NodeExpandVolume makes sure that a volume in use has the size that it was given.
func (d *Driver) NodeExpandVolume(_ context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if req.GetVolumeId() == "" || req.GetVolumePath() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request lacks the volume or the path")
	}
	size, err := d.expand(req.GetVolumeId(), req.GetCapacityRange())
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// expand gives a volume the size that is asked for, nil being the size that it has, and its
// device the same.
func (d *Driver) expand(name string, asked *csi.CapacityRange) (int64, error) {
	release, err := d.locks.change(name)
	if err != nil {
		return 0, err
	}
	defer release()
	p, record, err := d.find(name, (*pool.Pool).Volume)
	if err != nil {
		return 0, err
	}
	defer d.close(p)
	size, err := larger(asked, record)
	if err != nil {
		return 0, err
	}
	if size > record.Capacity {
		if err := d.room(p, size); err != nil {
			return 0, err
		}
	}
	expanded, err := p.Expand(name, size)
	if err != nil {
		return 0, err
	}
	if expanded.Block {
		if err := d.fit(p, name); err != nil {
			return 0, err
		}
	}
	if expanded.Capacity > record.Capacity {
		d.options.Log.Info("Expanded a volume", "volume", name, "from", record.Capacity, "to", expanded.Capacity)
	}
	return expanded.Capacity, nil
}

// larger is the size in bytes that a volume gets.
func larger(asked *csi.CapacityRange, record pool.Record) (int64, error) {
	if asked == nil {
		return record.Capacity, nil
	}
	size, err := capacity(asked, record.Block)
	if err != nil {
		return 0, err
	}
	if limit := asked.GetLimitBytes(); limit > 0 && record.Capacity > limit {
		return 0, status.Errorf(codes.OutOfRange, "volume %s has %d bytes and cannot shrink to %d: leave it, or copy its data to a smaller claim",
			record.Name, record.Capacity, limit)
	}
	if asked.GetRequiredBytes() == 0 {
		return record.Capacity, nil
	}
	return max(size, record.Capacity), nil
}

// fit gives the device of a block volume, if it has one, the size of its disk.
func (d *Driver) fit(p *pool.Pool, name string) error {
	content, err := p.OpenVolume(name)
	if err != nil {
		return err
	}
	defer d.close(content)
	return d.options.Devices.Fit(content.File)
}
