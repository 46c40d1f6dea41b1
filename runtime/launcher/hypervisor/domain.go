package hypervisor

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/qemulog"
)

// Started is what is known of a domain once it runs.
type Started struct {
	// Machine is the full type of the machine, such as pc-q35-10.0.
	Machine string
	// PID is QEMU's.
	PID int
}

// Warm makes libvirt look at QEMU's abilities, which takes it longer than all else of
// a start, so that this is done while volumes and networks are prepared.
func (h *Hypervisor) Warm(ctx context.Context, kvm bool) error {
	conn, err := h.connected(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.GetDomainCapabilities(domain.Emulator, "x86_64", "q35", kindOf(kvm), 0); err != nil {
		return fmt.Errorf("asking libvirt for the abilities of QEMU: %w", err)
	}
	return nil
}

// Plan is how a domain is started.
type Plan struct {
	// Paused makes the guest wait for Resume before its first instruction.
	Paused bool
	// Defined gets the domain with the addresses that libvirt gave its devices, before it
	// starts; nil where nobody asks.
	Defined func(*libvirtxml.Domain) error
}

// Start defines and starts the domain.
func (h *Hypervisor) Start(ctx context.Context, spec *libvirtxml.Domain, plan Plan) (Started, error) {
	conn, err := h.connected(ctx)
	if err != nil {
		return Started{}, err
	}
	document, err := spec.Marshal()
	if err != nil {
		return Started{}, fmt.Errorf("writing the domain's XML: %w", err)
	}
	began := time.Now()
	defined, err := conn.DomainDefineXMLFlags(document, libvirt.DOMAIN_DEFINE_VALIDATE)
	if err != nil {
		return Started{}, fmt.Errorf("defining the domain: %w", plain(err))
	}
	h.mu.Lock()
	h.domain, h.name = defined, spec.Name
	h.mu.Unlock()
	took := time.Since(began)
	if plan.Defined != nil {
		if err := show(defined, plan.Defined); err != nil {
			return Started{}, err
		}
	}
	flags := libvirt.DOMAIN_NONE
	if plan.Paused {
		flags = libvirt.DOMAIN_START_PAUSED
	}
	if err := defined.CreateWithFlags(flags); err != nil {
		return Started{}, fmt.Errorf("starting the domain: %w", plain(err))
	}
	h.options.Log.Info("Started the domain", "defining", took.String(), "starting", (time.Since(began) - took).String())
	return h.started(defined)
}

// show reads a defined domain for see.
func show(defined *libvirt.Domain, see func(*libvirtxml.Domain) error) error {
	document, err := defined.GetXMLDesc(0)
	if err != nil {
		return fmt.Errorf("reading the defined domain: %w", plain(err))
	}
	read := &libvirtxml.Domain{}
	if err := read.Unmarshal(document); err != nil {
		return fmt.Errorf("reading the defined domain: %w", err)
	}
	return see(read)
}

func (h *Hypervisor) started(domain *libvirt.Domain) (Started, error) {
	document, err := domain.GetXMLDesc(0)
	if err != nil {
		return Started{}, fmt.Errorf("reading the started domain: %w", err)
	}
	var running struct {
		Type struct {
			Machine string `xml:"machine,attr"`
		} `xml:"os>type"`
	}
	if err := xml.Unmarshal([]byte(document), &running); err != nil {
		return Started{}, fmt.Errorf("reading the started domain: %w", err)
	}
	pid, err := h.pid()
	if err != nil {
		return Started{}, err
	}
	return Started{Machine: running.Type.Machine, PID: pid}, nil
}

func (h *Hypervisor) pid() (int, error) {
	data, err := os.ReadFile(filepath.Join(h.options.Dir, "qemu", "run", h.name+".pid"))
	if err != nil {
		return 0, fmt.Errorf("reading QEMU's process id: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("reading QEMU's process id: %w", err)
	}
	return pid, nil
}

// Status asks for the domain's condition.
func (h *Hypervisor) Status() (Status, error) {
	domain, err := h.current()
	if err != nil {
		return Status{}, err
	}
	state, reason, err := domain.GetState()
	if err != nil {
		return Status{}, fmt.Errorf("asking for the domain's state: %w", err)
	}
	return stateStatus(state, reason), nil
}

// PowerDown asks the guest to shut down: by its agent, or else by the power button.
func (h *Hypervisor) PowerDown(agent bool) error {
	domain, err := h.current()
	if err != nil {
		return err
	}
	var agentErr error
	if agent {
		if agentErr = domain.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_GUEST_AGENT); agentErr == nil {
			return nil
		}
	}
	if err := domain.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_ACPI_POWER_BTN); err != nil {
		return fmt.Errorf("asking the guest to shut down: %w", errors.Join(agentErr, err))
	}
	return nil
}

// Destroy powers the domain off at once. A libvirt that does not manage that within
// patience, or is away, is gone around: QEMU is killed.
func (h *Hypervisor) Destroy(patience time.Duration) error {
	done := make(chan error, 1)
	go func() {
		domain, err := h.current()
		if err == nil {
			err = domain.Destroy()
		}
		done <- err
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var cause error
	select {
	case err := <-done:
		var known libvirt.Error
		if err == nil || errors.As(err, &known) && known.Code == libvirt.ERR_OPERATION_INVALID {
			return nil // off already
		}
		cause = err
	case <-timer.C:
		cause = fmt.Errorf("libvirt did not end it within %s", patience)
	}
	pid, err := h.pid()
	if err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if err != nil {
		return fmt.Errorf("powering the guest off: %w", errors.Join(cause, err))
	}
	h.options.Log.Warn("Killed QEMU, for libvirt failed to power the guest off", "pid", pid, "err", cause)
	return nil
}

// plain leaves libvirt's numbers out of an error that users read.
func plain(err error) error {
	var known libvirt.Error
	if errors.As(err, &known) && known.Message != "" {
		return errors.New(known.Message)
	}
	return err
}

// LastWords returns the end of QEMU's own messages, to explain why it ended.
func (h *Hypervisor) LastWords() string {
	h.mu.Lock()
	name := h.name
	h.mu.Unlock()
	return qemulog.LastWords(h.options.Dir, filepath.Join("cache", "libvirt", "qemu", "log", name+".log"))
}
