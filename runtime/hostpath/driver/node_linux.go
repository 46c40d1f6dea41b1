package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-vm/slipway/runtime/hostpath/bindmount"
	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

// NodeGetCapabilities lists what the node service can do.
func (d *Driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, rpc := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: rpc}},
		})
	}
	return response, nil
}

// NodeGetInfo names the node and the label that binds volumes to it.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.options.NodeName, AccessibleTopology: d.topology()}, nil
}

// NodeStageVolume gives a block volume its device. Other volumes need nothing.
func (d *Driver) NodeStageVolume(_ context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if req.GetVolumeId() == "" || req.GetStagingTargetPath() == "" || req.GetVolumeCapability() == nil {
		return nil, status.Errorf(codes.InvalidArgument, "the request lacks the volume, the staging path or the capability")
	}
	content, release, err := d.openFor(req.GetVolumeId(), req.GetVolumeCapability())
	if err != nil {
		return nil, asStatus(err)
	}
	defer release()
	if content.Record.Block {
		if _, err := d.attach(content); err != nil {
			return nil, asStatus(err)
		}
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume frees the device of a block volume. A volume that is gone has none.
func (d *Driver) NodeUnstageVolume(_ context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if req.GetVolumeId() == "" || req.GetStagingTargetPath() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request lacks the volume or the staging path")
	}
	release, err := d.locks.change(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	p, record, err := d.find(req.GetVolumeId(), (*pool.Pool).Volume)
	if errors.Is(err, pool.ErrNotFound) {
		return &csi.NodeUnstageVolumeResponse{}, nil
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
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume shows a volume, or its device, at the path that the kubelet names.
func (d *Driver) NodePublishVolume(_ context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if req.GetVolumeId() == "" || req.GetVolumeCapability() == nil {
		return nil, status.Errorf(codes.InvalidArgument, "the request lacks the volume or the capability")
	}
	if err := d.checkTarget(req.GetTargetPath()); err != nil {
		return nil, err
	}
	unlock, err := d.locks.change(req.GetTargetPath())
	if err != nil {
		return nil, err
	}
	defer unlock()
	content, release, err := d.openFor(req.GetVolumeId(), req.GetVolumeCapability())
	if err != nil {
		return nil, asStatus(err)
	}
	defer release()
	if err := d.publish(content, req); err != nil {
		return nil, asStatus(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *Driver) publish(content *pool.Content, req *csi.NodePublishVolumeRequest) error {
	source := content.File
	if content.Record.Block {
		path, err := d.attach(content)
		if err != nil {
			return err
		}
		if source, err = os.Open(path); err != nil {
			return status.Errorf(codes.Internal, "opening the device of volume %s: %v", content.Record.Name, err)
		}
		defer d.close(source)
	}
	if req.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		others, err := bindmount.Elsewhere(source, d.options.KubeletRoot, req.GetTargetPath())
		if err != nil {
			return err
		}
		if len(others) > 0 {
			return status.Errorf(codes.FailedPrecondition, "volume %s may be used by one pod (ReadWriteOncePod) and is in use at %s", content.Record.Name, others[0])
		}
	}
	return bindmount.Mount(source, req.GetTargetPath(), req.GetReadonly())
}

// NodeUnpublishVolume takes a volume away from a path. A path that is gone is no error.
func (d *Driver) NodeUnpublishVolume(_ context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request names no volume")
	}
	if err := d.checkTarget(req.GetTargetPath()); err != nil {
		return nil, err
	}
	unlock, err := d.locks.change(req.GetTargetPath())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := bindmount.Unmount(req.GetTargetPath()); err != nil {
		return nil, asStatus(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// openFor opens a volume's data, if the volume is of the mode that capability asks for.
func (d *Driver) openFor(name string, capability *csi.VolumeCapability) (*pool.Content, func(), error) {
	if flags := capability.GetMount().GetMountFlags(); len(flags) > 0 {
		return nil, nil, status.Errorf(codes.InvalidArgument, "mount options %v are not supported: leave mountOptions out of the StorageClass and the PersistentVolume", flags)
	}
	if capability.GetBlock() == nil && capability.GetMount() == nil {
		return nil, nil, status.Errorf(codes.InvalidArgument, "the volume capability names neither a block device nor a file system")
	}
	content, release, err := d.openContent(name, name, (*pool.Pool).Volume, (*pool.Pool).OpenVolume)
	if err != nil {
		return nil, nil, err
	}
	if content.Record.Block != (capability.GetBlock() != nil) {
		release()
		return nil, nil, status.Errorf(codes.InvalidArgument, "volume %s is of the other volume mode", name)
	}
	return content, release, nil
}

// attach gives a volume's disk its device, one call at a time: two could each give it one. The device of a disk in a claim
// must not keep the kubelet from unmounting the claim for a pod that holds it no more, while another holds it.
func (d *Driver) attach(content *pool.Content) (string, error) {
	d.attaching.Lock()
	defer d.attaching.Unlock()
	if !content.OnClaim {
		return d.options.Devices.Attach(content.File)
	}
	file, err := bindmount.Apart(content.File)
	if err != nil {
		return "", err
	}
	defer d.close(file)
	return d.options.Devices.Attach(file)
}

func (d *Driver) detach(p *pool.Pool, name string) error {
	content, err := p.OpenVolume(name)
	if err != nil {
		return err
	}
	defer d.close(content)
	return d.options.Devices.Detach(content.File)
}

// checkTarget refuses to mount anywhere but in the kubelet's directory.
func (d *Driver) checkTarget(target string) error {
	if target == "" {
		return status.Errorf(codes.InvalidArgument, "the request names no target path")
	}
	if filepath.Clean(target) != target || !strings.HasPrefix(target, filepath.Clean(d.options.KubeletRoot)+"/") {
		return status.Errorf(codes.InvalidArgument, "the target path %s is not below the kubelet's directory %s: set the kubelet root", target, d.options.KubeletRoot)
	}
	return nil
}
