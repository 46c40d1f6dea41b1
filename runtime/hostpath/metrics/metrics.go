// Package metrics tells Prometheus of the storage pools of a node.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-vm/slipway/internal/metric"
)

// Pool is what was measured of one pool.
type Pool struct {
	// Name is the pool's name.
	Name string
	// Usable is false for a pool that the node lacks or that cannot be read; the rest is then 0.
	Usable bool
	// Capacity, Available and Used are bytes of the pool's file system, Promised the sizes of its
	// volumes added up.
	Capacity, Available, Used, Promised int64
	// Volumes and Snapshots are how many there are.
	Volumes, Snapshots int
	// WithSystem says that the pool is on the file system of the node's root.
	WithSystem bool
}

var labels = []string{"node", "pool"} //nolint:gochecknoglobals // a list

// What is told of each pool.
//
//nolint:gochecknoglobals // a table
var (
	usable = metric.Metric{
		Name: "slipway_storage_pool_usable", Kind: metric.Gauge, Labels: labels,
		Help: "1 when a storage pool can be used on a node; 0 when its directory is missing or cannot be read, and nothing else is told of it.",
	}
	capacity = metric.Metric{
		Name: "slipway_storage_pool_capacity_bytes", Kind: metric.Gauge, Labels: labels,
		Help: "Size of the file system that a storage pool is on.",
	}
	available = metric.Metric{
		Name: "slipway_storage_pool_available_bytes", Kind: metric.Gauge, Labels: labels,
		Help: "What is free of the file system that a storage pool is on.",
	}
	used = metric.Metric{
		Name: "slipway_storage_pool_used_bytes", Kind: metric.Gauge, Labels: labels,
		Help: "What is used of the file system that a storage pool is on, by volumes and by anything else there.",
	}
	promised = metric.Metric{
		Name: "slipway_storage_pool_promised_bytes", Kind: metric.Gauge, Labels: labels,
		Help: "Sizes of a storage pool's volumes, added up. Volumes are thin: it may be more than the pool holds.",
	}
	volumes = metric.Metric{
		Name: "slipway_storage_pool_volumes", Kind: metric.Gauge, Labels: labels,
		Help: "How many volumes a storage pool has on a node.",
	}
	snapshots = metric.Metric{
		Name: "slipway_storage_pool_snapshots", Kind: metric.Gauge, Labels: labels,
		Help: "How many snapshots a storage pool has on a node.",
	}
	withSystem = metric.Metric{
		Name: "kubevirt_hpp_pool_path_shared_with_os", Kind: metric.Gauge, Labels: labels,
		Help: "1 when a storage pool is on the file system of the node's system, which it may fill up.",
	}
)

// All lists the metrics of storage pools.
func All() []metric.Metric {
	return []metric.Metric{usable, capacity, available, used, promised, volumes, snapshots, withSystem}
}

// Collector measures the pools of a node at each scrape.
type Collector struct {
	// Node is the node's name.
	Node string
	// Measure measures its pools.
	Measure func() []Pool
}

var _ prometheus.Collector = Collector{}

// Describe describes nothing, for which pools there are changes.
func (c Collector) Describe(chan<- *prometheus.Desc) {}

// Collect measures.
func (c Collector) Collect(out chan<- prometheus.Metric) {
	for _, pool := range c.Measure() {
		tell := func(m metric.Metric, value int64) { out <- m.Value(float64(value), []string{c.Node, pool.Name}, nil) }
		tell(usable, number(pool.Usable))
		if !pool.Usable {
			continue
		}
		tell(capacity, pool.Capacity)
		tell(available, pool.Available)
		tell(used, pool.Used)
		tell(promised, pool.Promised)
		tell(volumes, int64(pool.Volumes))
		tell(snapshots, int64(pool.Snapshots))
		tell(withSystem, number(pool.WithSystem))
	}
}

func number(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
