package launcher

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/launcher/console"
	"github.com/slipway-vm/slipway/runtime/launcher/disks"
	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/launcher/link"
	"github.com/slipway-vm/slipway/runtime/launcher/process"
	"github.com/slipway-vm/slipway/runtime/launcher/virtiofs"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// domainRunner is what the machine needs of libvirt.
type domainRunner interface {
	Start(ctx context.Context, spec *libvirtxml.Domain, plan hypervisor.Plan) (hypervisor.Started, error)
	Keep(files []*os.File) error
	Status() (hypervisor.Status, error)
	PowerDown(agent bool) error
	Resume() error
	Destroy(patience time.Duration) error
}

// machine is the one virtual machine. A single goroutine, run, owns its fields;
// others hand it work through tasks.
type machine struct {
	options Options
	log     *slog.Logger
	hv      *hypervisor.Hypervisor
	domain  domainRunner
	link    *link.Link
	endings *endings
	tasks   chan func(context.Context)

	state    protocol.State
	qemu     int                 // process id
	images   map[string]*os.File // container disks, open for QEMU
	plugs    plugs
	dumps    dumps
	backups  backups
	leases   leases
	console  *console.Log // nil when nothing is kept of it
	stopping stopping
	waiting  waiting
	disks    disks.Leases
	// servers are those of the filesystems that the guest mounts, children of the launcher.
	servers  []*virtiofs.Server
	children *process.Table
	agent    agentWatch
	access   accessKeeper
	thaw     *time.Timer // when frozen file systems go on by themselves
	// processors are those that the pod has for itself, of a VMI with dedicated ones.
	processors []domain.HostCPU
	health     *health // has its own locks, as what follows

	measuring sync.Mutex // held while the guest is being measured
	surveying survey     // by its agent
}

func newMachine(options Options, hv *hypervisor.Hypervisor, children *process.Table, endings *endings) *machine {
	m := &machine{
		options: options, log: options.Log, hv: hv, domain: hv, endings: endings,
		tasks: make(chan func(context.Context)), images: map[string]*os.File{},
		plugs:    plugs{files: map[string]*os.File{}, loans: map[string]*loan{}},
		children: children,
		stopping: newStopping(), waiting: newWaiting(), agent: agentWatch{timer: stoppedTimer()},
		access: accessKeeper{timer: stoppedTimer()}, thaw: stoppedTimer(),
	}
	m.health = newHealth(m, hv)
	return m
}

// run serves the machine until it has ended, and returns its last state. failed gets
// the end of libvirt or of the handler's link.
func (m *machine) run(ctx context.Context, terminate <-chan os.Signal, failed <-chan error) protocol.State {
	defer m.stopping.stop()
	defer m.waiting.timer.Stop()
	defer m.agent.stop()
	defer m.access.timer.Stop()
	defer m.thaw.Stop()
	defer m.leases.stop()
	defer m.dumps.abandon()
	defer m.backups.abandon()
	defer m.stopFilesystems()
	for !m.over() {
		select {
		case <-ctx.Done():
			return m.state
		case <-terminate:
			m.log.Info("Asked to terminate")
			m.state.Terminated = !m.stopping.begun
			m.shutdown(m.options.GracePeriod)
		case err := <-failed:
			m.fail("LauncherFailed", err)
		case task := <-m.tasks:
			task(ctx)
		case event := <-m.hv.Events():
			m.on(ctx, event)
		case <-m.stopping.press.C:
			m.pressPowerButton()
		case <-m.stopping.deadline.C:
			m.destroy(fmt.Sprintf("the guest did not shut down within its grace period of %s", m.stopping.grace))
		case <-m.waiting.timer.C:
			m.startAgain(ctx)
		case <-m.agent.timer.C:
			m.askAgent(ctx)
		case <-m.access.timer.C:
			m.giveAccess(ctx)
		case <-m.thaw.C:
			m.thawGuest(ctx)
		}
	}
	return m.state
}

// over says whether the machine came to its end.
func (m *machine) over() bool {
	switch m.state.Phase {
	case protocol.PhaseShutdown, protocol.PhaseCrashed, protocol.PhaseFailed:
		return true
	default:
		return m.stopping.begun && m.state.Phase == protocol.PhaseNone // nothing to shut down
	}
}

// enter changes the phase and tells the handler, unless it is the end, which is told last.
func (m *machine) enter(phase protocol.Phase, reason, message string) {
	if m.state.Phase != phase {
		m.state.Since = time.Now().UTC()
	}
	m.state.Phase, m.state.Reason, m.state.Message = phase, reason, message
	m.log.Info("The virtual machine changed", "phase", phase, "reason", reason, "message", message)
	if !m.over() {
		m.link.Publish(m.state)
	}
}

func (m *machine) fail(reason string, err error) {
	if err != nil {
		m.enter(protocol.PhaseFailed, reason, err.Error())
	}
}

// on acts on an event of libvirt.
func (m *machine) on(ctx context.Context, event hypervisor.Event) {
	m.log.Debug("Libvirt tells", "event", event.Kind, "detail", event.Detail)
	switch event.Kind {
	case hypervisor.Lifecycle:
		m.condition(ctx, event.Status)
	case hypervisor.Reconnected:
		status, err := m.domain.Status()
		if err != nil {
			m.fail("LibvirtFailed", err)
			return
		}
		m.missedUnplugs()
		m.missedDump(ctx)
		m.lookAtBackup(ctx)
		go m.missedAgent(ctx)
		m.condition(ctx, status)
		go m.keepDisks(m.disks.Files())
	case hypervisor.DeviceRemoved:
		m.unplugged(event.Detail)
	case hypervisor.DeviceStays:
		m.leaving(strings.TrimPrefix(event.Detail, domain.AliasPrefix), guestRefused)
	case hypervisor.MemoryDumped:
		m.dumped(ctx, event.Detail)
	case hypervisor.BackupMoved:
		m.lookAtBackup(ctx)
	case hypervisor.AgentChanged:
		m.agentChanged(event.AgentConnected)
	case hypervisor.IOError:
		m.log.Warn("A disk failed", "detail", event.Detail)
		m.state.Message = event.Detail
		m.link.Publish(m.state)
	case hypervisor.MemoryChanged:
		m.memoryTaken(event.Bytes)
	case hypervisor.Rebooted:
		m.log.Info("The guest restarts")
		m.agent.leased = false
		m.thawed() // a new system begins with its own
	}
}

// condition enters the phase of the domain's condition.
func (m *machine) condition(ctx context.Context, status hypervisor.Status) {
	if m.state.Phase == protocol.PhaseNone || m.over() {
		return
	}
	switch status.Condition {
	case hypervisor.Running:
		if m.state.Phase != protocol.PhaseRunning && m.state.Phase != protocol.PhaseStarting {
			m.enter(protocol.PhaseRunning, "", "")
		}
	case hypervisor.Paused:
		if m.state.Phase == protocol.PhaseRunning && !dumping(m.state) { // QEMU lets it go on by itself
			m.enter(protocol.PhasePaused, status.Reason, m.state.Message)
		}
	case hypervisor.Off:
		m.enter(protocol.PhaseShutdown, status.Reason, "the guest shut down")
	case hypervisor.Destroyed:
		m.enter(protocol.PhaseShutdown, status.Reason, m.stopping.why)
	case hypervisor.Crashed:
		m.enter(protocol.PhaseCrashed, status.Reason, m.crashMessage(ctx, status))
	}
}

func (m *machine) crashMessage(ctx context.Context, status hypervisor.Status) string {
	if status.Reason == hypervisor.ReasonGuestPanicked {
		return panicMessage(m.console)
	}
	message := m.endings.of(ctx, m.qemu)
	if message == "" {
		message = "QEMU ended unexpectedly"
	}
	if said := m.hv.LastWords(); said != "" {
		message += "; it said: " + said
	}
	return message
}

// panicMessage tells of a panic, with the last words on the guest's serial console.
func panicMessage(log *console.Log) string {
	message := "the guest's kernel panicked"
	if log == nil {
		return message
	}
	panicked, said := log.LastWords()
	if panicked != "" {
		message += ": " + panicked
	}
	if said != "" {
		message += "; the last on its serial console: " + said
	}
	return message
}

// do runs task in the machine's goroutine and waits for its end.
func (m *machine) do(ctx context.Context, task func(context.Context)) error {
	done := make(chan struct{})
	select {
	case <-ctx.Done():
		return fmt.Errorf("handing over to the virtual machine: %w", ctx.Err())
	case m.tasks <- func(ctx context.Context) { defer close(done); task(ctx) }:
	}
	<-done
	return nil
}

var _ guestagent.Channel = (*hypervisor.Hypervisor)(nil)
