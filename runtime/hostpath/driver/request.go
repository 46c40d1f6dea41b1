package driver

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

// sizes of volumes, in bytes: that of one whose request names none, and the unit of block volumes.
const (
	defaultSize = 1 << 30
	blockUnit   = 1 << 20
)

// isBlock says whether capabilities ask for a block device, and refuses those that no
// volume of this driver can have.
func isBlock(capabilities []*csi.VolumeCapability) (bool, error) {
	if len(capabilities) == 0 {
		return false, status.Errorf(codes.InvalidArgument, "the request names no volume capability")
	}
	block := capabilities[0].GetBlock() != nil
	for _, capability := range capabilities {
		if (capability.GetBlock() != nil) != block {
			return false, status.Errorf(codes.InvalidArgument, "a volume cannot be both a block device and a file system")
		}
		if err := checkCapability(capability); err != nil {
			return false, err
		}
	}
	return block, nil
}

func checkCapability(capability *csi.VolumeCapability) error {
	if capability.GetBlock() == nil && capability.GetMount() == nil {
		return status.Errorf(codes.InvalidArgument, "the volume capability names neither a block device nor a file system")
	}
	if fsType := capability.GetMount().GetFsType(); fsType != "" {
		return status.Errorf(codes.InvalidArgument, "file system type %q cannot be chosen, it is the pool's: leave csi.storage.k8s.io/fstype out of the StorageClass", fsType)
	}
	if flags := capability.GetMount().GetMountFlags(); len(flags) > 0 {
		return status.Errorf(codes.InvalidArgument, "mount options %v are not supported: leave mountOptions out of the StorageClass", flags)
	}
	switch mode := capability.GetAccessMode().GetMode(); mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return nil
	case csi.VolumeCapability_AccessMode_UNKNOWN:
		return status.Errorf(codes.InvalidArgument, "the volume capability names no access mode")
	default:
		return status.Errorf(codes.InvalidArgument, "access mode %v is not supported, a volume is on one node: ask for ReadWriteOnce or ReadWriteOncePod", mode)
	}
}

// capacity is the size of the volume that the range asks for.
func capacity(asked *csi.CapacityRange, block bool) (int64, error) {
	required, limit := asked.GetRequiredBytes(), asked.GetLimitBytes()
	if required < 0 || limit < 0 {
		return 0, status.Errorf(codes.InvalidArgument, "the size is negative")
	}
	if required == 0 {
		required = defaultSize
		if limit > 0 {
			required = min(required, limit)
		}
	}
	if block {
		required = (required + blockUnit - 1) / blockUnit * blockUnit
	}
	if limit > 0 && required > limit {
		return 0, status.Errorf(codes.OutOfRange, "no volume of at least %d and at most %d bytes can be made", asked.GetRequiredBytes(), limit)
	}
	return required, nil
}

// poolName is the pool that the parameters name; the only one when they name none.
func (d *Driver) poolName(parameters map[string]string) (string, error) {
	for key := range parameters {
		if key != ParameterPool {
			return "", status.Errorf(codes.InvalidArgument, "parameter %s is not supported: leave it out of the StorageClass", key)
		}
	}
	if name := parameters[ParameterPool]; name != "" {
		return name, nil
	}
	known := names(d.options.Pools.Pools())
	if len(known) == 1 {
		return known[0], nil
	}
	return "", status.Errorf(codes.InvalidArgument, "the parameter %s is missing: name one of %v in the StorageClass", ParameterPool, known)
}

// here refuses a volume that must be on other nodes.
func (d *Driver) here(required *csi.TopologyRequirement) error {
	topologies := slices.Concat(required.GetRequisite(), required.GetPreferred())
	if len(topologies) == 0 || slices.ContainsFunc(topologies, d.isHere) {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "the volume is asked for on another node than %s", d.options.NodeName)
}

func (d *Driver) isHere(topology *csi.Topology) bool {
	return topology.GetSegments()[d.options.TopologyKey] == d.options.NodeName
}

func (d *Driver) topology() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{d.options.TopologyKey: d.options.NodeName}}
}

// room refuses a volume that the pool's file system could never hold. Less is not
// refused for what is free now: volumes are thin.
func (d *Driver) room(p *pool.Pool, bytes int64) error {
	space, err := p.Space()
	if err != nil {
		return err
	}
	if bytes > space.Total {
		return status.Errorf(codes.OutOfRange, "the volume is to have %d bytes, all of storage pool %s on node %s has %d: ask for less, or use a larger pool",
			bytes, p.Name(), d.options.NodeName, space.Total)
	}
	return nil
}
