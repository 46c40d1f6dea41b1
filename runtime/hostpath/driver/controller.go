package driver

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

// ControllerGetCapabilities lists what the controller can do.
func (d *Driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, rpc := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc}},
		})
	}
	return response, nil
}

// CreateVolume makes an empty volume, or one with the data of a volume or snapshot of this node.
func (d *Driver) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if req.GetName() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request names no volume")
	}
	block, err := isBlock(req.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	size, err := capacity(req.GetCapacityRange(), block)
	if err != nil {
		return nil, err
	}
	if err := d.here(req.GetAccessibilityRequirements()); err != nil {
		return nil, err
	}
	poolName, err := d.poolName(req.GetParameters())
	if err != nil {
		return nil, err
	}
	release, err := d.locks.change(req.GetName())
	if err != nil {
		return nil, err
	}
	defer release()
	record := pool.Record{Name: req.GetName(), Block: block, Capacity: size, Source: sourceOf(req.GetVolumeContentSource())}
	if err := d.create(ctx, poolName, record, req.GetVolumeContentSource()); err != nil {
		return nil, asStatus(err)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: record.Name, CapacityBytes: size, VolumeContext: map[string]string{ParameterPool: poolName},
		ContentSource: req.GetVolumeContentSource(), AccessibleTopology: []*csi.Topology{d.topology()},
	}}, nil
}

func (d *Driver) create(ctx context.Context, poolName string, record pool.Record, from *csi.VolumeContentSource) error {
	p, err := d.open(poolName)
	if err != nil {
		return err
	}
	defer d.close(p)
	if err := d.room(p, record.Capacity); err != nil {
		return err
	}
	// What exists needs its source no more, which may be gone by now.
	if _, err := p.Volume(record.Name); err == nil || from == nil {
		_, _, err := p.CreateVolume(ctx, record, nil)
		return err
	}
	source, release, err := d.openSource(from)
	if err != nil {
		return err
	}
	defer release()
	d.options.Log.Info("Cloning a volume", "source", record.Source, "volume", record.Name)
	_, result, err := p.CreateVolume(ctx, record, &pool.Copy{From: source, Progress: d.progress(record.Source, record.Name)})
	if err == nil {
		d.options.Log.Info("Cloned a volume", "source", record.Source, "volume", record.Name,
			"filesShared", result.Shared, "filesCopied", result.Copied, "bytesCopied", result.Bytes)
	}
	return err
}

// DeleteVolume removes a volume and its data.
func (d *Driver) DeleteVolume(_ context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request names no volume")
	}
	release, err := d.locks.change(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	p, record, err := d.find(req.GetVolumeId(), (*pool.Pool).Volume)
	if errors.Is(err, pool.ErrNotFound) {
		return &csi.DeleteVolumeResponse{}, d.finishDeletion(req.GetVolumeId(), (*pool.Pool).DeleteVolume)
	}
	if err != nil {
		return nil, asStatus(err)
	}
	defer d.close(p)
	if record.Block {
		if err := d.detach(p, record.Name); err != nil {
			return nil, asStatus(err)
		}
	}
	if err := p.DeleteVolume(record.Name); err != nil {
		return nil, asStatus(err)
	}
	d.options.Log.Info("Deleted a volume", "volume", record.Name)
	return &csi.DeleteVolumeResponse{}, nil
}

// finishDeletion removes what an earlier attempt to delete a volume or snapshot left.
func (d *Driver) finishDeletion(name string, remove func(*pool.Pool, string) error) error {
	for _, poolName := range names(d.options.Pools.Pools()) {
		p, err := d.open(poolName)
		if err != nil {
			return err
		}
		err = remove(p, name)
		d.close(p)
		if err != nil {
			return asStatus(err)
		}
	}
	return nil
}

// ValidateVolumeCapabilities confirms what a volume can do.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request names no volume")
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, status.Errorf(codes.InvalidArgument, "the request names no volume capability")
	}
	p, record, err := d.find(req.GetVolumeId(), (*pool.Pool).Volume)
	if err != nil {
		return nil, asStatus(err)
	}
	d.close(p)
	block, err := isBlock(req.GetVolumeCapabilities())
	if err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	if block != record.Block {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: "the volume is of the other volume mode"}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
	}}, nil
}

// GetCapacity returns what is free in a pool, or in all when the request names none, of which those on one
// file system count once; and the whole of it as the largest size of a volume, which is thin.
func (d *Driver) GetCapacity(_ context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if topology := req.GetAccessibleTopology(); topology != nil && !d.isHere(topology) {
		return &csi.GetCapacityResponse{}, nil
	}
	asked := names(d.options.Pools.Pools())
	if len(req.GetParameters()) > 0 {
		name, err := d.poolName(req.GetParameters())
		if err != nil {
			return nil, err
		}
		asked = []string{name}
	}
	var available, largest int64
	counted := map[uint64]bool{}
	for _, name := range asked {
		space, err := d.space(name)
		if err != nil {
			return nil, asStatus(err)
		}
		if !counted[space.Device] {
			available += space.Available
		}
		counted[space.Device] = true
		largest = max(largest, space.Total)
	}
	return &csi.GetCapacityResponse{AvailableCapacity: available, MaximumVolumeSize: wrapperspb.Int64(largest)}, nil
}

func (d *Driver) space(poolName string) (pool.Space, error) {
	p, err := d.open(poolName)
	if err != nil {
		return pool.Space{}, err
	}
	defer d.close(p)
	return p.Space()
}
