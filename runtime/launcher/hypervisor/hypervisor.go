package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/slipway-vm/slipway/runtime/launcher/process"
)

const (
	// A daemon that died more often than restarts within window is not started again. The guest runs on
	// without it, and ends with the launcher: so that comes late. Libvirt may crash when a
	// device leaves that QEMU was given before the daemon's last start.
	restarts = 10
	window   = time.Minute
	events   = 64
)

// Options of a hypervisor.
type Options struct {
	// Program is libvirtd; Dir its runtime folder, which must be named libvirt.
	Program, Dir string
	Children     *process.Table
	Log          *slog.Logger
}

// Hypervisor is libvirt with its one domain.
type Hypervisor struct {
	options Options
	events  chan Event
	ready   chan struct{} // closed once the first connection stands
	broken  chan struct{} // tells that libvirt gave up the agent's channel

	mu      sync.Mutex
	conn    *libvirt.Connect
	domain  *libvirt.Domain
	name    string
	renewed time.Time // when the agent's channel was, last
}

// New returns a hypervisor that Run starts.
func New(options Options) *Hypervisor {
	return &Hypervisor{options: options, events: make(chan Event, events), ready: make(chan struct{}), broken: make(chan struct{})}
}

// Events are what happens to the domain, in order. They must be received, or libvirt
// waits.
func (h *Hypervisor) Events() <-chan Event { return h.events }

// Run keeps the daemon running and connected until ctx is done. It returns an error
// when that cannot be done any more.
func (h *Hypervisor) Run(ctx context.Context) error {
	if err := writeConfiguration(h.options.Dir, kvmDevice); err != nil {
		return err
	}
	if err := installCapabilities(BakedCapabilities, kvmDevice, h.options.Program, h.options.Dir); err != nil {
		h.options.Log.Warn("Failed to use the image's description of QEMU; libvirt asks QEMU itself", "err", err)
	}
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return fmt.Errorf("starting libvirt's event loop: %w", err)
	}
	go h.loop(ctx)
	var starts []time.Time
	for {
		starts = append(starts, time.Now())
		err := h.runDaemon(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if n := len(starts); n > restarts && time.Since(starts[n-1-restarts]) < window {
			return fmt.Errorf("libvirtd died %d times within %s, the last time so: %w", restarts+1, window, err)
		}
		h.options.Log.Warn("Starting libvirtd again", "err", err)
	}
}

// loop is libvirt's event loop: it delivers what callbacks get.
func (h *Hypervisor) loop(ctx context.Context) {
	for ctx.Err() == nil {
		if err := libvirt.EventRunDefaultImpl(); err != nil {
			h.options.Log.Error("Failed a turn of libvirt's event loop", "err", err)
			return
		}
	}
}

// runDaemon starts the daemon, connects, and returns when it ended.
func (h *Hypervisor) runDaemon(ctx context.Context) error {
	d, err := startDaemon(h.options.Children, h.options.Program, h.options.Dir, h.options.Log)
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.reachable(ctx, h.options.Dir, h.connect); err != nil {
		return err
	}
	defer h.disconnect()
	if err := h.adopt(); err != nil {
		return err
	}
	select {
	case <-h.ready:
		h.events <- Event{Kind: Reconnected}
	default:
		close(h.ready)
	}
	select {
	case <-ctx.Done():
		d.stop() // before the connection is closed, for a daemon that stands still does not answer that
		return nil
	case <-h.broken:
		return h.end(ctx, d)
	case <-d.ended:
		return fmt.Errorf("libvirtd ended: %w", errors.Join(d.err, errUnexpected))
	}
}

var errUnexpected = errors.New("it should run as long as the launcher")

func (h *Hypervisor) connect() error {
	uri := "qemu+unix:///session?socket=" + filepath.Join(h.options.Dir, socketName)
	conn, err := libvirt.NewConnect(uri)
	if err != nil {
		return fmt.Errorf("connecting to libvirt: %w", err)
	}
	if err := h.subscribe(conn); err != nil {
		_, closeErr := conn.Close()
		return errors.Join(err, closeErr)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn = conn
	return nil
}

func (h *Hypervisor) disconnect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.domain != nil {
		_ = h.domain.Free()
		h.domain = nil
	}
	if h.conn != nil {
		_, _ = h.conn.Close()
		h.conn = nil
	}
}

// adopt finds the domain again after the daemon was started anew.
func (h *Hypervisor) adopt() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.name == "" {
		return nil
	}
	domain, err := h.conn.LookupDomainByName(h.name)
	if err != nil {
		return fmt.Errorf("finding the domain %s again: %w", h.name, err)
	}
	h.domain = domain
	return nil
}

// connected returns libvirt's connection, once there is one.
func (h *Hypervisor) connected(ctx context.Context) (*libvirt.Connect, error) {
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for libvirt: %w", ctx.Err())
	case <-h.ready:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == nil {
		return nil, errAway
	}
	return h.conn, nil
}

var errAway = errors.New("libvirtd is being started again; try once more in a moment")

// held returns the started domain and the connection for a call that may take long, or run
// while others do: they stay what they are until release, also when libvirtd ends meanwhile.
func (h *Hypervisor) held() (domain *libvirt.Domain, conn *libvirt.Connect, release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.domain == nil || h.conn == nil {
		return nil, nil, nil, errAway
	}
	domain, conn = h.domain, h.conn
	if err := domain.Ref(); err != nil {
		return nil, nil, nil, fmt.Errorf("holding the domain: %w", plain(err))
	}
	if err := conn.Ref(); err != nil {
		_ = domain.Free()
		return nil, nil, nil, fmt.Errorf("holding the connection to libvirtd: %w", plain(err))
	}
	release = func() {
		_ = domain.Free()
		_, _ = conn.Close()
	}
	return domain, conn, release, nil
}

// current returns the started domain.
func (h *Hypervisor) current() (*libvirt.Domain, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.domain == nil {
		return nil, errAway
	}
	return h.domain, nil
}
