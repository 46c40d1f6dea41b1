// Package driver is the CSI driver of node-local volumes: the Identity, Controller and
// Node services, all about this one node. It keeps no state in memory that matters:
// what exists is what the pools hold.
package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-vm/slipway/runtime/hostpath/loopdev"
	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

// ParameterPool is the StorageClass parameter, and the volume attribute, that names the pool.
const ParameterPool = "storagePool"

// Pools knows the pools of this node.
type Pools interface {
	// Pools returns where each pool is by its name.
	Pools() map[string]Place
}

// Place is where a pool is on the node.
type Place struct {
	// Path is the absolute path of its directory; "": it is not there yet.
	Path string
	// Make says that the directory is made where the one that it is in is there.
	Make bool
	// Claim is the claim that the pool lies on, as namespace/name; "": it is a directory of the node.
	Claim string
	// Mount says that Path is where the claim's volume is mounted, and not the pool when nothing is.
	Mount bool
}

// Options are the facts that a Driver works with.
type Options struct {
	// Name is the driver's name, Version the program's.
	Name, Version string
	// NodeName is the node's name, TopologyKey the label that volumes are bound to it by.
	NodeName, TopologyKey string
	// KubeletRoot is the kubelet's directory, under which it asks for mounts.
	KubeletRoot string
	// HostRoot is where the node's file system is mounted, "/" on the node itself.
	HostRoot string
	// Pools knows the pools, Devices the loop devices of the node.
	Pools   Pools
	Devices loopdev.Devices
	// Log hears what the driver does.
	Log logr.Logger
}

// Driver serves the CSI services. Use New.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	options   Options
	locks     locks
	attaching sync.Mutex

	sweeping sync.Mutex
	swept    map[string]bool // claims, or else paths, of pools whose rests of crashes were removed
}

// New returns a driver.
func New(options Options) *Driver {
	return &Driver{options: options, locks: locks{held: map[string]int{}}, swept: map[string]bool{}}
}

// HasPool returns an error that says so when the node does not have the pool called name. It is no call of CSI.
func (d *Driver) HasPool(name string) error {
	_, err := d.place(name)
	return err
}

func (d *Driver) place(name string) (Place, error) {
	known := d.options.Pools.Pools()
	place, ok := known[name]
	if !ok {
		return place, status.Errorf(codes.FailedPrecondition, "storage pool %q is not on node %s, which has %s: name one of these as %s, or add it to the HostPathProvisioner",
			name, d.options.NodeName, list(known), ParameterPool)
	}
	return place, nil
}

// open opens the pool called name.
func (d *Driver) open(name string) (*pool.Pool, error) {
	place, err := d.place(name)
	if err != nil {
		return nil, err
	}
	p, err := d.openAt(name, place)
	if err != nil {
		return nil, err
	}
	d.sweep(p, cmp.Or(place.Claim, place.Path)) // a claim is at another path in each pod that holds it
	return p, nil
}

// openAt opens the pool called name at its place.
func (d *Driver) openAt(name string, place Place) (*pool.Pool, error) {
	if place.Path == "" {
		return nil, d.unmounted(name, place)
	}
	open := pool.Open
	if place.Make {
		open = pool.OpenOrMake
	}
	p, err := open(d.options.HostRoot, name, place.Path)
	if errors.Is(err, pool.ErrMissing) {
		if place.Mount {
			return nil, d.unmounted(name, place)
		}
		return nil, status.Errorf(codes.FailedPrecondition, "storage pool %s: the directory %s does not exist on node %s: create it there, or mount its disk",
			name, place.Path, d.options.NodeName)
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "storage pool %s on node %s: %v", name, d.options.NodeName, err)
	}
	if !place.Mount {
		return p, nil
	}
	mounted, err := p.IsMount()
	if err == nil && !mounted {
		err = d.unmounted(name, place)
	}
	if err != nil {
		d.close(p)
		return nil, err
	}
	return p, nil
}

// unmounted says that the claim of a pool is not to be had on this node now.
func (d *Driver) unmounted(name string, place Place) error {
	return status.Errorf(codes.FailedPrecondition, "storage pool %s lies on the claim %s, which is not mounted on node %s: `kubectl describe` says of the claim, and of the pod of that name, what they wait for",
		name, place.Claim, d.options.NodeName)
}

// sweep removes the rests of crashes from a pool on its first use. What stays is only space lost, and tried again by the next process.
func (d *Driver) sweep(p *pool.Pool, at string) {
	d.sweeping.Lock()
	defer d.sweeping.Unlock()
	if d.swept[at] {
		return
	}
	d.swept[at] = true
	if err := p.Sweep(); err != nil {
		d.options.Log.Error(err, "Removing the rests of a crash failed", "pool", p.Name(), "at", at)
	}
}

// find opens the pool that holds a volume or snapshot, found by lookup. It returns
// pool.ErrNotFound only when every pool could be searched.
func (d *Driver) find(name string, lookup func(*pool.Pool, string) (pool.Record, error)) (*pool.Pool, pool.Record, error) {
	var unsearched error
	for _, poolName := range names(d.options.Pools.Pools()) {
		p, err := d.open(poolName)
		if err != nil {
			unsearched = err
			continue
		}
		record, err := lookup(p, name)
		if err == nil {
			return p, record, nil
		}
		d.close(p)
		if !errors.Is(err, pool.ErrNotFound) {
			return nil, pool.Record{}, err
		}
	}
	if unsearched != nil {
		return nil, pool.Record{}, unsearched
	}
	return nil, pool.Record{}, fmt.Errorf("searching %s on node %s: %w", name, d.options.NodeName, pool.ErrNotFound)
}

func (d *Driver) close(c interface{ Close() error }) {
	if err := c.Close(); err != nil {
		d.options.Log.Error(err, "Closing failed")
	}
}

// progressEvery is how often a copy that takes long says how far it is.
const progressEvery = 10 * time.Second

// progress returns a function that logs how much of a copy is done, now and then.
func (d *Driver) progress(source, target string) func(int64) {
	var done int64
	last := time.Now()
	return func(n int64) {
		done += n
		if time.Since(last) >= progressEvery {
			last = time.Now()
			d.options.Log.Info("Copying data, since the file system cannot share blocks", "source", source, "target", target, "bytes", done)
		}
	}
}

func names(pools map[string]Place) []string {
	var sorted []string
	for name := range pools {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	return sorted
}

func list(pools map[string]Place) string {
	if len(pools) == 0 {
		return "none"
	}
	return fmt.Sprint(names(pools))
}

// asStatus gives an error of the layers below its gRPC code.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for cause, code := range map[error]codes.Code{
		pool.ErrNotFound: codes.NotFound, pool.ErrDiffers: codes.AlreadyExists, pool.ErrTooSmall: codes.OutOfRange,
		pool.ErrName: codes.InvalidArgument, errNoSpace: codes.ResourceExhausted, pool.ErrInUse: codes.FailedPrecondition,
		context.Canceled: codes.Canceled, context.DeadlineExceeded: codes.DeadlineExceeded,
	} {
		if errors.Is(err, cause) {
			return status.Errorf(code, "%v", err)
		}
	}
	return status.Errorf(codes.Internal, "%v", err)
}
