package driver

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

// NodeGetVolumeStats returns the size of a block volume, or of the file system that a
// volume shares with the rest of its pool.
func (d *Driver) NodeGetVolumeStats(_ context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if req.GetVolumeId() == "" || req.GetVolumePath() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the request lacks the volume or the path")
	}
	p, _, err := d.find(req.GetVolumeId(), (*pool.Pool).Volume)
	if err != nil {
		return nil, asStatus(err)
	}
	d.close(p)
	info, err := os.Stat(req.GetVolumePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.NotFound, "nothing is at %s", req.GetVolumePath())
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "reading %s: %v", req.GetVolumePath(), err)
	}
	if info.IsDir() {
		return fileSystemStats(req.GetVolumePath())
	}
	return deviceStats(req.GetVolumePath())
}

func fileSystemStats(path string) (*csi.NodeGetVolumeStatsResponse, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return nil, status.Errorf(codes.Internal, "reading the file system at %s: %v", path, err)
	}
	unit := stat.Frsize
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{
			Unit: csi.VolumeUsage_BYTES, Total: int64(stat.Blocks) * unit,
			Available: int64(stat.Bavail) * unit, Used: int64(stat.Blocks-stat.Bfree) * unit,
		},
		{
			Unit: csi.VolumeUsage_INODES, Total: int64(stat.Files),
			Available: int64(stat.Ffree), Used: int64(stat.Files - stat.Ffree),
		},
	}}, nil
}

func deviceStats(path string) (*csi.NodeGetVolumeStatsResponse, error) {
	device, err := os.Open(path)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "opening the device %s: %v", path, err)
	}
	defer device.Close()
	size, err := device.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "reading the size of %s: %v", path, err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}}}, nil
}
