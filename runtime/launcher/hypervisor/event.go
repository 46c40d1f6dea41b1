package hypervisor

import (
	"fmt"

	"libvirt.org/go/libvirt"
)

// Kind says what an event is about.
type Kind int

// Kinds of events.
const (
	// Lifecycle: the domain changed its state; see Status.
	Lifecycle Kind = iota
	// AgentChanged: the guest's agent opened or closed its channel; see AgentConnected.
	AgentChanged
	// IOError: a disk failed; see Detail.
	IOError
	// MemoryChanged: the guest uses another part of the memory that it was offered.
	MemoryChanged
	// Rebooted: the guest restarted; QEMU goes on.
	Rebooted
	// DeviceRemoved: a device has left the guest; Detail is its alias.
	DeviceRemoved
	// DeviceStays: the guest refused to let go of a device; Detail is its alias.
	DeviceStays
	// MemoryDumped: QEMU has ended writing the guest's memory; Detail says why it failed.
	MemoryDumped
	// BackupMoved: a disk was backed up, or could not be; see Jobs.
	BackupMoved
	// Reconnected: events may have been missed; ask for the status.
	Reconnected
)

// Event is something that happened to the domain.
type Event struct {
	Kind           Kind
	Status         Status
	AgentConnected bool
	Detail         string
	// Bytes are used of the memory that was offered.
	Bytes int64
}

// Condition of a domain.
type Condition int

// Conditions.
const (
	Running Condition = iota
	Paused
	// Off after the guest powered off.
	Off
	// Destroyed: off by force, as it was asked for.
	Destroyed
	// Crashed: the guest's kernel panicked, or QEMU ended without being asked.
	Crashed
)

// ReasonPausedByUser is the reason of Paused when somebody asked for it.
const ReasonPausedByUser = "PausedByUser"

// Reasons of an end: of Destroyed, of Off, and of Crashed when QEMU ended by itself.
const (
	ReasonDestroyed     = "Destroyed"
	ReasonGuestShutdown = "GuestShutdown"
	ReasonQEMUEnded     = "QEMUEnded"
)

// ReasonGuestPanicked is the reason of Crashed when the guest's kernel panicked, which
// its panic device told.
const ReasonGuestPanicked = "GuestPanicked"

// Status is a domain's condition and libvirt's word for the reason.
type Status struct {
	Condition Condition
	Reason    string
}

// subscribe asks for all events; callbacks run in libvirt's event loop.
func (h *Hypervisor) subscribe(conn *libvirt.Connect) error {
	_, err := conn.DomainEventLifecycleRegister(nil, func(_ *libvirt.Connect, _ *libvirt.Domain, event *libvirt.DomainEventLifecycle) {
		if status, changed := lifecycleStatus(event); changed {
			h.events <- Event{Kind: Lifecycle, Status: status}
		}
	})
	if err != nil {
		return fmt.Errorf("asking libvirt for lifecycle events: %w", err)
	}
	_, err = conn.DomainEventAgentLifecycleRegister(nil, func(_ *libvirt.Connect, _ *libvirt.Domain, event *libvirt.DomainEventAgentLifecycle) {
		connected := event.State == libvirt.CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_STATE_CONNECTED
		h.events <- Event{Kind: AgentChanged, AgentConnected: connected}
	})
	if err != nil {
		return fmt.Errorf("asking libvirt for the agent's events: %w", err)
	}
	_, err = conn.DomainEventIOErrorReasonRegister(nil, func(_ *libvirt.Connect, _ *libvirt.Domain, event *libvirt.DomainEventIOErrorReason) {
		h.events <- Event{Kind: IOError, Detail: fmt.Sprintf("disk %s: %s", event.DevAlias, event.Reason)}
	})
	if err != nil {
		return fmt.Errorf("asking libvirt for I/O errors: %w", err)
	}
	_, err = conn.DomainEventRebootRegister(nil, func(_ *libvirt.Connect, _ *libvirt.Domain) {
		h.events <- Event{Kind: Rebooted}
	})
	if err != nil {
		return fmt.Errorf("asking libvirt for reboots: %w", err)
	}
	_, err = conn.DomainEventMemoryDeviceSizeChangeRegister(nil, func(_ *libvirt.Connect, _ *libvirt.Domain, event *libvirt.DomainEventMemoryDeviceSizeChange) {
		h.events <- Event{Kind: MemoryChanged, Bytes: int64(event.Size) * 1024} //nolint:gosec // less than a machine has
	})
	if err != nil {
		return fmt.Errorf("asking libvirt for changes of the memory: %w", err)
	}
	if err := h.subscribeDevices(conn); err != nil {
		return err
	}
	if err := h.subscribeDumps(conn); err != nil {
		return err
	}
	return h.subscribeJobs(conn)
}

// lifecycleStatus translates an event; false for one that changes nothing here.
func lifecycleStatus(event *libvirt.DomainEventLifecycle) (Status, bool) {
	switch event.Event {
	case libvirt.DOMAIN_EVENT_STARTED:
		// A boot is Start's to tell: it may leave the guest paused.
		return Status{Condition: Running}, libvirt.DomainEventStartedDetailType(event.Detail) != libvirt.DOMAIN_EVENT_STARTED_BOOTED
	case libvirt.DOMAIN_EVENT_RESUMED:
		return Status{Condition: Running}, true
	case libvirt.DOMAIN_EVENT_SUSPENDED:
		return Status{Condition: Paused, Reason: pausedReason(libvirt.DomainEventSuspendedDetailType(event.Detail))}, true
	case libvirt.DOMAIN_EVENT_CRASHED:
		return Status{Condition: Crashed, Reason: ReasonGuestPanicked}, true
	case libvirt.DOMAIN_EVENT_STOPPED:
		return stoppedStatus(libvirt.DomainEventStoppedDetailType(event.Detail)), true
	default:
		return Status{}, false
	}
}

func pausedReason(detail libvirt.DomainEventSuspendedDetailType) string {
	switch detail {
	case libvirt.DOMAIN_EVENT_SUSPENDED_IOERROR:
		return "PausedIOError"
	case libvirt.DOMAIN_EVENT_SUSPENDED_WATCHDOG:
		return "PausedByWatchdog"
	default:
		return ReasonPausedByUser
	}
}

func stoppedStatus(detail libvirt.DomainEventStoppedDetailType) Status {
	switch detail {
	case libvirt.DOMAIN_EVENT_STOPPED_SHUTDOWN:
		return Status{Condition: Off, Reason: ReasonGuestShutdown}
	case libvirt.DOMAIN_EVENT_STOPPED_DESTROYED:
		return Status{Condition: Destroyed, Reason: ReasonDestroyed}
	case libvirt.DOMAIN_EVENT_STOPPED_CRASHED:
		return Status{Condition: Crashed, Reason: ReasonGuestPanicked}
	default:
		return Status{Condition: Crashed, Reason: ReasonQEMUEnded}
	}
}

// stateStatus translates a state that was asked for.
func stateStatus(state libvirt.DomainState, reason int) Status {
	switch state {
	case libvirt.DOMAIN_PAUSED, libvirt.DOMAIN_PMSUSPENDED:
		switch libvirt.DomainPausedReason(reason) {
		case libvirt.DOMAIN_PAUSED_IOERROR:
			return Status{Condition: Paused, Reason: "PausedIOError"}
		case libvirt.DOMAIN_PAUSED_WATCHDOG:
			return Status{Condition: Paused, Reason: "PausedByWatchdog"}
		}
		return Status{Condition: Paused, Reason: ReasonPausedByUser}
	case libvirt.DOMAIN_CRASHED:
		return Status{Condition: Crashed, Reason: ReasonGuestPanicked}
	case libvirt.DOMAIN_SHUTOFF:
		switch libvirt.DomainShutoffReason(reason) {
		case libvirt.DOMAIN_SHUTOFF_SHUTDOWN:
			return Status{Condition: Off, Reason: ReasonGuestShutdown}
		case libvirt.DOMAIN_SHUTOFF_DESTROYED:
			return Status{Condition: Destroyed, Reason: ReasonDestroyed}
		}
		return Status{Condition: Crashed, Reason: ReasonQEMUEnded}
	default:
		return Status{Condition: Running}
	}
}
