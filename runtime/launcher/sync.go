package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/cloudinit"
	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/launcher/console"
	"github.com/slipway-vm/slipway/runtime/launcher/disks"
	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// sync runs the VMI when nothing runs yet; later it takes in what changed of the facts.
func (m *machine) sync(ctx context.Context, request protocol.Sync, files []*os.File) error {
	if request.VMI == nil || string(request.VMI.UID) != m.options.UID {
		closeAll(files)
		return fmt.Errorf("the sync is not for VMI %s/%s (uid %s) of this pod", m.options.Namespace, m.options.Name, m.options.UID)
	}
	if len(files) != len(request.Facts.ContainerDisks) {
		closeAll(files)
		return fmt.Errorf("the sync names %d container disks and carries %d files", len(request.Facts.ContainerDisks), len(files))
	}
	m.takeImages(request.Facts.ContainerDisks, files)
	if m.stopping.begun {
		return nil
	}
	if m.waiting.request != nil {
		m.waiting.request = &request // the start to come uses what is known then
		return nil
	}
	if m.state.Phase == protocol.PhaseNone {
		m.start(ctx, request)
		m.trim()
		return nil
	}
	if err := m.leases.update(ctx, request.Facts.Interfaces, m.onLease(ctx), m.log); err != nil {
		return err
	}
	m.askAgainFromStart()
	return nil
}

// trim makes the launcher small again after work that is done once.
func (m *machine) trim() {
	if err := trimMemory(); err != nil {
		m.log.Warn("Failed to give memory back", "err", err)
	}
}

// takeImages keeps the first file of each container disk: QEMU may have it open by
// its number already.
func (m *machine) takeImages(volumes []string, files []*os.File) {
	for i, volume := range volumes {
		if m.images[volume] == nil {
			m.images[volume] = files[i]
		} else {
			_ = files[i].Close() // only ever read
		}
	}
}

// start prepares, defines and starts the domain; a failure is the machine's end.
func (m *machine) start(ctx context.Context, request protocol.Sync) {
	if m.state.Reason != protocol.ReasonDiskInUse { // which is told until it is so no more
		m.enter(protocol.PhaseStarting, "", "")
	}
	m.state.KVM = kvmUsable()
	if !m.state.KVM && !request.Facts.AllowEmulation {
		m.fail("KVMUnavailable", errors.New("/dev/kvm cannot be used in this pod and emulation is not allowed; "+
			"schedule on a node with KVM, or set developerConfiguration.useEmulation of the KubeVirt object"))
		return
	}
	if !m.leaseDisks(request) {
		return
	}
	prepared, err := disks.Prepare(m.paths(), disks.Request{
		VMI: request.VMI, ContainerDisks: m.images, ClaimSizes: request.Facts.ClaimSizes, Preallocated: request.Facts.Preallocated,
	})
	if err != nil {
		m.fail("VolumesNotReady", err)
		return
	}
	if reason, err := m.prepare(request.VMI); err != nil {
		m.fail(reason, err)
		return
	}
	spec, err := m.build(request, prepared)
	if err != nil {
		m.fail("InvalidSpec", err)
		return
	}
	m.stepAside(spec)
	if err := m.openConsole(ctx, request); err != nil {
		m.fail("ConsoleFailed", err)
		return
	}
	if err := m.leases.update(ctx, request.Facts.Interfaces, m.onLease(ctx), m.log); err != nil {
		m.fail("NetworkNotReady", err)
		return
	}
	plan := hypervisor.Plan{Paused: request.VMI.ShouldStartPaused(), Defined: m.describe(request.VMI)}
	began := time.Now()
	started, err := m.startDomain(ctx, spec, plan)
	if lockRefused(err) && !m.leaseDisks(request) {
		return // somebody was faster
	}
	if err != nil {
		m.fail("StartFailed", withWords(err, m.endings.ofStart(began), m.hv.LastWords()))
		return
	}
	go m.watchQEMU(ctx, started.PID)
	if !m.took(ctx, request, started) {
		return
	}
	m.state.Disks = diskStates(spec, prepared)
	if plan.Paused {
		m.enter(protocol.PhasePaused, hypervisor.ReasonPausedByUser, "")
		return
	}
	m.enter(protocol.PhaseRunning, "", "")
}

// prepare makes ready what the VMI needs beside its disks. With an error comes its reason.
func (m *machine) prepare(vmi *v1.VirtualMachineInstance) (reason string, err error) {
	if err := m.prepareState(vmi); err != nil {
		return "StateNotReady", err
	}
	if err := m.findProcessors(vmi); err != nil {
		return "CPUsNotDedicated", err
	}
	if err := checkTables(vmi, m.paths().Secrets); err != nil {
		return "VolumesNotReady", err
	}
	return "FilesystemsNotReady", m.startFilesystems(vmi)
}

// took notes what the domain started with, and begins to keep what it needs while it runs. It
// says whether that worked; without it the machine has failed.
func (m *machine) took(ctx context.Context, request protocol.Sync, started hypervisor.Started) bool {
	if err := m.domain.Keep(m.disks.Files()); err != nil {
		m.fail("VolumesNotReady", err)
		return false
	}
	m.qemu, m.state.Machine = started.PID, started.Machine
	if err := m.keepAccess(ctx, request.VMI); err != nil {
		m.log.Error("Failed to watch the Secrets of the access credentials: what changes in them does not reach the guest", "err", err)
	}
	if err := m.keepMetrics(ctx, request.VMI, request.Facts.NodeName); err != nil {
		m.fail("MetricsFailed", err)
		return false
	}
	m.noteSize(request.VMI)
	m.keepFilesystems(ctx)
	return true
}

// paths are where volumes are in this pod.
func (m *machine) paths() disks.Paths {
	return disks.PodPaths(filepath.Join(m.options.own(), "disks"))
}

// describe returns what tells the guest on its configuration drive where its tagged
// devices are; nil when there is nothing to tell.
func (m *machine) describe(vmi *v1.VirtualMachineInstance) func(*libvirtxml.Domain) error {
	if !cloudinit.TellsDevices(vmi) {
		return nil
	}
	return func(defined *libvirtxml.Domain) error {
		return disks.Describe(m.paths(), vmi, cloudinit.Tagged(vmi, defined))
	}
}

func (m *machine) build(request protocol.Sync, prepared map[string]disks.Disk) (*libvirtxml.Domain, error) {
	sources := map[string]domain.Disk{}
	for name, disk := range prepared {
		sources[name] = disk.Disk
	}
	own := m.options.own()
	return domain.Build(domain.Input{
		VMI: request.VMI, KVM: m.state.KVM, Disks: sources, Interfaces: request.Facts.Interfaces, SMBIOS: request.Facts.SMBIOS, Options: request.Facts.Options,
		BalloonPeriod: request.Facts.BalloonPeriod,
		Console:       domain.Console{Socket: filepath.Join(own, socketConsole), Log: filepath.Join(own, "virt-serial0-pipe")},
		VNCSocket:     filepath.Join(own, socketVNC), USBSockets: filepath.Join(own, socketsUSB),
		FilesystemSockets: filepath.Join(own, socketsFilesystem),
		MetricsSocket:     filepath.Join(own, socketMetrics),
		Firmware:          domain.DebianFirmware(filepath.Join(own, "nvram.fd")),
		Kernel:            m.kernel(), CPUs: m.processors, SecretsDir: m.paths().Secrets,
		StateDir: m.options.StateDir, Now: time.Now(),
	})
}

// openConsole makes what takes the serial console's output.
func (m *machine) openConsole(ctx context.Context, request protocol.Sync) error {
	if !domain.LogsConsole(request.VMI, request.Facts.Options) || m.console != nil {
		return nil
	}
	own := m.options.own()
	log, err := console.Open(filepath.Join(own, "virt-serial0-pipe"), filepath.Join(own, "virt-serial0-log"), m.options.Console, m.log)
	if err != nil {
		return err
	}
	m.console = log
	go log.Copy(ctx)
	return nil
}

// onLease is called by DHCP servers when the guest took its address.
func (m *machine) onLease(ctx context.Context) func() {
	return func() {
		_ = m.do(ctx, func(context.Context) { // fails only at the end
			m.agent.leased = true
			m.askAgainFromStart()
		})
	}
}

// diskStates are the disks as the handler reports them.
func diskStates(spec *libvirtxml.Domain, prepared map[string]disks.Disk) []protocol.Disk {
	var out []protocol.Disk
	for i := range spec.Devices.Disks {
		disk := &spec.Devices.Disks[i]
		if disk.Source == nil {
			continue // an empty drive
		}
		volume := strings.TrimPrefix(disk.Alias.Name, domain.AliasPrefix)
		out = append(out, protocol.Disk{Volume: volume, Target: disk.Target.Dev, Size: prepared[volume].Size})
	}
	return out
}

// kvmUsable says whether the pod was given /dev/kvm.
func kvmUsable() bool {
	fd, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// sameGuest compares what the agent tells.
func sameGuest(a, b protocol.State) bool {
	return a.AgentVersion == b.AgentVersion && reflect.DeepEqual(a.GuestOS, b.GuestOS) && reflect.DeepEqual(a.Interfaces, b.Interfaces)
}

// withWords adds to err how QEMU ended and what it said, as far as is known.
func withWords(err error, ended, said string) error {
	if ended != "" {
		err = fmt.Errorf("%w; %s", err, ended)
	}
	if said != "" && !strings.Contains(err.Error(), said) { // libvirt may have quoted it
		err = fmt.Errorf("%w; QEMU said: %s", err, said)
	}
	return err
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}
