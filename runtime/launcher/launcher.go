// Package launcher is the first process of a launcher pod: it starts libvirt for the
// pod's one virtual machine, connects to the node's virt-handler, runs the VM that
// the handler names, tells every change of it, and ends when the VM has ended.
package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/launcher/link"
	"github.com/slipway-vm/slipway/runtime/launcher/probe"
	"github.com/slipway-vm/slipway/runtime/launcher/process"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

const (
	// flushTimeout is how long the end of the VM waits for a handler to hear of it, which may be starting again on a busy node.
	flushTimeout = 30 * time.Second
	// bakeTimeout bounds the look at QEMU when the image is built.
	bakeTimeout = time.Minute
	// memoryTarget is what the Go heap tries to stay under, in bytes.
	memoryTarget = 12 << 20
	// collectPercent trades a little CPU, of which the launcher uses next to none, for memory.
	collectPercent = 30
)

// Options of a launcher.
type Options struct {
	// Name, Namespace and UID are the VMI's.
	Name, Namespace, UID string
	// GracePeriod is how long the guest may take to shut down after a SIGTERM.
	GracePeriod time.Duration
	// SocketDir is where virt-handler makes its socket, PrivateDir where the VM's own
	// files go, LibvirtDir libvirt's runtime folder.
	// CredentialsDir has the Secrets of access credentials.
	SocketDir, PrivateDir, LibvirtDir, CredentialsDir string
	// StateDir is where the claim is mounted on which the VM keeps its TPM's and its
	// firmware's state, when it does.
	StateDir string
	// Libvirtd is the daemon's program.
	Libvirtd string
	// Console gets the guest's serial output.
	Console io.Writer
	// TerminationMessage is the file whose content Kubernetes shows as the container's
	// last words; it may not exist.
	TerminationMessage string
	Log                *slog.Logger
}

// PodOptions are those of a launcher pod.
func PodOptions() Options {
	return Options{
		SocketDir: names.LauncherSocketDir, PrivateDir: names.LauncherPrivateDir, LibvirtDir: names.LauncherLibvirtDir,
		CredentialsDir: names.LauncherCredentialsDir, StateDir: names.LauncherStateDir,
		Libvirtd: "/usr/sbin/libvirtd", Console: os.Stdout, TerminationMessage: "/dev/termination-log",
		Log: slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: levelOf(os.Getenv(names.EnvLauncherVerbosity))})),
	}
}

// Levels of the field, 0 to 9, from which on more is logged.
const (
	informs = 2 // and where nothing is said
	debugs  = 4
)

// levelOf is what is logged at verbosity, which is a number or empty.
func levelOf(verbosity string) slog.Level {
	level, err := strconv.Atoi(verbosity)
	switch {
	case err != nil:
		return slog.LevelInfo
	case level >= debugs:
		return slog.LevelDebug
	case level >= informs:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

func (o Options) validate() error {
	for flag, value := range map[string]string{"--name": o.Name, "--namespace": o.Namespace, "--uid": o.UID} {
		if value == "" {
			return fmt.Errorf("%s is missing; give the VMI's", flag)
		}
	}
	if filepath.Base(o.LibvirtDir) != "libvirt" {
		return fmt.Errorf("libvirt's folder %s must be named libvirt", o.LibvirtDir)
	}
	return nil
}

// own is the folder of this VMI's sockets, log and images.
func (o Options) own() string { return filepath.Join(o.PrivateDir, o.UID) }

// Run runs the VM to its end. It returns nil when the guest shut down or was asked
// to, and an error when it could not be started or crashed. terminate asks for a
// shutdown within the grace period.
func Run(ctx context.Context, options Options, terminate <-chan os.Signal) error {
	if err := options.validate(); err != nil {
		return err
	}
	debug.SetGCPercent(collectPercent)
	debug.SetMemoryLimit(memoryTarget)
	unix.Umask(0o007)
	if err := os.MkdirAll(options.own(), 0o770); err != nil {
		return fmt.Errorf("making the VM's folder: %w", err)
	}
	children, err := process.NewTable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	endings := newEndings()
	running.Go(func() { children.Reap(ctx, endings.note) })

	hv := hypervisor.New(hypervisor.Options{Program: options.Libvirtd, Dir: options.LibvirtDir, Children: children, Log: options.Log})
	m := newMachine(options, hv, children, endings)
	m.link = link.New(link.Options{
		Dir: options.SocketDir, Name: names.LauncherSocketName,
		Hello:   wire.Hello{Version: wire.Version, Role: wire.RoleLauncher, VMIUID: options.UID},
		Handler: m.handle, Log: options.Log,
	})
	probes := newProber(hv, m.link.State)
	failed := make(chan error, 3)
	running.Go(func() { failed <- hv.Run(ctx) })
	running.Go(func() { failed <- m.link.Run(ctx) })
	running.Go(func() {
		failed <- probe.Serve(ctx, filepath.Join(options.own(), names.LauncherProbeSocket), probes.answer, options.Log)
	})
	running.Go(func() { warm(ctx, hv, options.Log) })
	final := m.run(ctx, terminate, failed)
	return conclude(ctx, options, m.link, final)
}

// warm lets libvirt learn about QEMU while the handler prepares; without it the
// start does.
func warm(ctx context.Context, hv *hypervisor.Hypervisor, log *slog.Logger) {
	if _, err := os.Stat("/dev/kvm"); err == nil && !kvmUsable() {
		return // the handler has yet to give it to this pod; libvirt looks at the start
	}
	began := time.Now()
	err := hv.Warm(ctx, kvmUsable())
	switch {
	case err == nil:
		log.Info("Libvirt is ready", "after", time.Since(began).String())
	case ctx.Err() == nil:
		log.Warn("Failed to prepare libvirt", "err", err)
	}
}

// BakeCapabilities writes what QEMU can do to path. It runs in a launcher image that
// is being built, as root or uid 107, with an empty folder dir named libvirt.
func BakeCapabilities(ctx context.Context, dir, path string) error {
	children, err := process.NewTable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bakeTimeout)
	defer cancel()
	go children.Reap(ctx, func(process.Ending) {})
	options := PodOptions()
	return hypervisor.BakeCapabilities(ctx, hypervisor.Options{Program: options.Libvirtd, Dir: dir, Children: children, Log: options.Log}, path)
}

// conclude tells the last state to the handler, and to Kubernetes when it is bad.
func conclude(ctx context.Context, options Options, handler *link.Link, final protocol.State) error {
	options.Log.Info("The virtual machine has ended", "phase", final.Phase, "reason", final.Reason, "message", final.Message)
	if final.Phase != protocol.PhaseNone {
		flush, cancel := context.WithTimeout(ctx, flushTimeout)
		defer cancel()
		if err := handler.Flush(flush, final); err != nil {
			options.Log.Warn("Failed to tell the last state", "err", err)
		}
	}
	if final.Phase != protocol.PhaseCrashed && final.Phase != protocol.PhaseFailed {
		return nil
	}
	message := fmt.Sprintf("%s: %s", final.Reason, final.Message)
	if options.TerminationMessage != "" {
		if err := os.WriteFile(options.TerminationMessage, []byte(message), 0o644); err != nil {
			options.Log.Warn("Failed to write the termination message", "err", err)
		}
	}
	return errors.New(message)
}
