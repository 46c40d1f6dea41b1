package driver

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/hostpath/metrics"
)

// Measure says how each pool of the node is, in the order of their names.
func (d *Driver) Measure() []metrics.Pool {
	var measured []metrics.Pool
	for _, name := range names(d.options.Pools.Pools()) {
		found, err := d.measure(name)
		if err != nil {
			d.options.Log.Error(err, "Measuring a storage pool failed", "pool", name)
			found = metrics.Pool{}
		}
		found.Name, found.Usable = name, err == nil
		measured = append(measured, found)
	}
	return measured
}

func (d *Driver) measure(name string) (metrics.Pool, error) {
	p, err := d.open(name)
	if err != nil {
		return metrics.Pool{}, err
	}
	defer d.close(p)
	space, spaceErr := p.Space()
	held, heldErr := p.Inventory()
	var system unix.Stat_t
	rootErr := unix.Stat(d.options.HostRoot, &system)
	if rootErr != nil {
		rootErr = fmt.Errorf("reading the node's root %s: %w", d.options.HostRoot, rootErr)
	}
	return metrics.Pool{
		Capacity: space.Total, Available: space.Available, Used: space.Used,
		Promised: held.Promised, Volumes: held.Volumes, Snapshots: held.Snapshots,
		WithSystem: space.Device == system.Dev,
	}, errors.Join(spaceErr, heldErr, rootErr)
}
