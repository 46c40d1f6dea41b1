package metric

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Kinds of connections with guests.
var (
	Console = connections("kubevirt_console_active_connections", "Clients that are connected with a VMI's console.")
	VNC     = connections("kubevirt_vnc_active_connections", "Clients that are connected with a VMI's screen.")
	USB     = connections("kubevirt_usbredir_active_connections", "Devices that clients have plugged into a VMI from afar.")
	VSOCK   = connections("slipway_vsock_active_connections", "Clients that are connected with a port of a VMI by VSOCK.")
	Tunnel  = connections("kubevirt_portforward_active_tunnels", "Ports of a VMI that are forwarded to clients.")

	lastConnection = Metric{
		Name: "kubevirt_vmi_last_api_connection_timestamp_seconds", Kind: Gauge, Labels: []string{"namespace", "vmi"},
		Help: "When a client was last connected with a VMI by the API, as seen by the program that tells.",
	}
)

func connections(name, help string) Metric {
	return Metric{Name: name, Kind: Gauge, Labels: []string{"namespace", "vmi"}, Help: help}
}

// maxRemembered bounds of how many VMIs it is known when they were last connected with. Of more, those are forgotten that
// were not for longest.
const maxRemembered = 10000

// Connections counts the connections that a program makes with guests.
type Connections struct {
	kinds []Metric
	now   func() time.Time

	mu   sync.Mutex
	vmis map[[2]string]*connected
}

// connected is what is known of the connections with a VMI.
type connected struct {
	active map[string]int // by kind
	last   time.Time
}

func (c *connected) idle() bool {
	for _, n := range c.active {
		if n > 0 {
			return false
		}
	}
	return true
}

// NewConnections counts connections of kinds.
func NewConnections(kinds ...Metric) *Connections {
	return &Connections{kinds: kinds, now: time.Now, vmis: map[[2]string]*connected{}}
}

// Begin counts a connection with a VMI until end is called, which must be once.
func (c *Connections) Begin(kind Metric, namespace, name string) (end func()) {
	count := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		one := c.vmis[[2]string{namespace, name}]
		if one == nil {
			c.makeRoom()
			one = &connected{active: map[string]int{}}
			c.vmis[[2]string{namespace, name}] = one
		}
		one.active[kind.Name] += n
		one.last = c.now()
	}
	count(1)
	return func() { count(-1) }
}

// makeRoom forgets the VMI that was idle for longest where there are too many. It is called with the lock held.
func (c *Connections) makeRoom() {
	if len(c.vmis) < maxRemembered {
		return
	}
	var oldest [2]string
	var at time.Time
	for vmi, one := range c.vmis {
		if one.idle() && (at.IsZero() || one.last.Before(at)) {
			oldest, at = vmi, one.last
		}
	}
	if !at.IsZero() {
		delete(c.vmis, oldest)
	}
}

// All lists what is told of connections of these kinds.
func (c *Connections) All() []Metric { return append([]Metric{lastConnection}, c.kinds...) }

// Describe implements prometheus.Collector.
func (c *Connections) Describe(out chan<- *prometheus.Desc) { describe(c.All(), out) }

// Collect implements prometheus.Collector. A VMI that somebody was connected with stays, with 0 connections.
func (c *Connections) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for vmi, one := range c.vmis {
		out <- lastConnection.Value(float64(one.last.Unix()), vmi[:], nil)
		for _, kind := range c.kinds {
			if n, ever := one.active[kind.Name]; ever {
				out <- kind.Value(float64(n), vmi[:], nil)
			}
		}
	}
}

// AllConnections lists what all programs tell of connections.
func AllConnections() []Metric { return NewConnections(Console, VNC, USB, VSOCK, Tunnel).All() }
