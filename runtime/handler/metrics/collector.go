package metrics

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Bounds of a scrape, whose clients commonly wait for ten seconds. A launcher that hangs must
// delay neither the others nor the scrape: it has its own time, and next time its turn comes last.
const (
	launcherPatience = 2 * time.Second
	scrapePatience   = 6 * time.Second
	atOnce           = 32
)

// Launcher tells of its guest.
type Launcher interface {
	Stats(ctx context.Context) (protocol.Stats, error)
}

// Options say whom to ask.
type Options struct {
	// VMIs lists the VMIs of this node.
	VMIs func(ctx context.Context) ([]v1.VirtualMachineInstance, error)
	// Fresh is how long a measurement is told again instead of another being made, so that who
	// asks often asks no guest more often.
	Fresh time.Duration
	// Launcher returns the launcher of the VMI with uid; nil when none is known.
	Launcher func(uid types.UID) Launcher
}

// Collector measures the node's guests at every scrape. It is an unchecked collector: the
// labels of its series depend on those of VMIs.
type Collector struct {
	options Options
	begin   func() (context.Context, context.CancelFunc)
	flights singleflight.Group

	mu     sync.Mutex
	silent map[types.UID]bool // launchers that did not answer the last time

	// Of the last measurement; one at a time is made.
	last   []prometheus.Metric
	lastAt time.Time
}

// New returns a collector that asks nobody any more once ctx is done.
func New(ctx context.Context, options Options) *Collector {
	return &Collector{
		options: options, silent: map[types.UID]bool{},
		begin: func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, scrapePatience) },
	}
}

// Describe implements prometheus.Collector; without descriptions the collector is unchecked.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. Scrapes at the same time share one measurement.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	found, _, _ := c.flights.Do("", func() (any, error) { return c.fresh(), nil })
	all, _ := found.([]prometheus.Metric)
	for _, one := range all {
		out <- one
	}
}

// fresh returns the last measurement, or a new one when that is old.
func (c *Collector) fresh() []prometheus.Metric {
	if time.Since(c.lastAt) >= c.options.Fresh {
		c.last, c.lastAt = c.measure(), time.Now()
	}
	return c.last
}

func (c *Collector) measure() []prometheus.Metric {
	ctx, cancel := c.begin()
	defer cancel()
	vmis, err := c.options.VMIs(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing the node's VMIs for a scrape failed")
		return nil
	}
	vmis = c.inTurn(vmis)
	results := make([][]prometheus.Metric, len(vmis))
	reasons := make([]string, len(vmis))
	slots := make(chan struct{}, atOnce)
	var asking sync.WaitGroup
	for i := range vmis {
		slots <- struct{}{} // is free again within launcherPatience
		asking.Go(func() {
			defer func() { <-slots }()
			results[i], reasons[i] = c.ask(ctx, &vmis[i])
		})
	}
	asking.Wait()
	c.remember(vmis, reasons)
	return slices.Concat(results...)
}

// inTurn returns those that run, who were silent the last time at the end.
func (c *Collector) inTurn(vmis []v1.VirtualMachineInstance) []v1.VirtualMachineInstance {
	vmis = slices.DeleteFunc(vmis, func(vmi v1.VirtualMachineInstance) bool { return vmi.Status.Phase != v1.Running })
	c.mu.Lock()
	defer c.mu.Unlock()
	turn := func(vmi v1.VirtualMachineInstance) int {
		if c.silent[vmi.UID] {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(vmis, func(a, b v1.VirtualMachineInstance) int { return cmp.Compare(turn(a), turn(b)) })
	return vmis
}

func (c *Collector) remember(vmis []v1.VirtualMachineInstance, reasons []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.silent)
	for i, reason := range reasons {
		if reason == reasonSilent {
			c.silent[vmis[i].UID] = true
		}
	}
}

// Values of the label reason.
const (
	reasonOld    = "old_launcher"
	reasonAway   = "away"
	reasonSilent = "silent"
	reasonFailed = "failed"
)

// ask returns all series of a VMI, and why it could not be measured; empty when it could.
func (c *Collector) ask(ctx context.Context, vmi *v1.VirtualMachineInstance) ([]prometheus.Metric, string) {
	told := newSeries(vmi)
	launcher := c.options.Launcher(vmi.UID)
	err := session.ErrNotConnected
	if launcher != nil {
		var stats protocol.Stats
		limited, cancel := context.WithTimeout(ctx, launcherPatience)
		defer cancel()
		if stats, err = launcher.Stats(limited); err == nil {
			told.add(measured, 1, "")
			told.addStats(&stats)
			return told.out, ""
		}
	}
	reason := reasonOf(err)
	if reason == reasonFailed {
		log.FromContext(ctx).Error(err, "Measuring a guest failed", "namespace", vmi.Namespace, "VirtualMachineInstance", vmi.Name)
	}
	told.add(measured, 0, reason)
	return told.out, reason
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, session.ErrOldLauncher):
		return reasonOld
	case errors.Is(err, session.ErrNotConnected):
		return reasonAway
	case errors.Is(err, session.ErrSilent), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return reasonSilent
	}
	return reasonFailed
}
