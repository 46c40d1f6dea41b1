// Package hypervisor runs libvirt's daemon for the one domain of a launcher pod and
// drives that domain by libvirt's calls and events. The daemon is a child of the
// launcher, in session mode, without privileges; QEMU outlives it, so it is started
// again when it dies.
package hypervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/launcher/process"
)

const (
	socketName   = "libvirt-sock"
	startTimeout = 30 * time.Second
	stopTimeout  = 5 * time.Second
	// A socket's file appears a moment before anybody listens on it.
	listenRetry = 5 * time.Millisecond
)

// libvirtdConf keeps the daemon small: one VM needs few threads. Warnings and errors
// go to the launcher's log. Calls that wait for a QEMU that does not answer must not keep others
// from being read: those that ask whether libvirt answers, or end QEMU.
const libvirtdConf = `log_outputs = "3:stderr"
min_workers = 1
max_workers = 4
prio_workers = 1
max_client_requests = 64
admin_min_workers = 1
admin_max_workers = 1
`

// qemuConf leaves to Kubernetes what is Kubernetes': cgroups, namespaces, confinement.
const qemuConf = `cgroup_controllers = []
namespaces = []
security_driver = "none"
stdio_handler = "file"
remember_owner = 0
`

// emulationConf makes libvirt read an emulated processor's features with two questions
// to QEMU instead of one for each of some 450, which takes most of a start. With KVM it
// is left out: there the short way does not tell all features.
const emulationConf = `capability_filters = ["cpu-unavailable-features"]
`

// hugepagesConf names the pod's volume of huge pages, for which libvirt only looks by itself when
// it is privileged.
const hugepagesConf = `hugetlbfs_mount = "%s"
`

// daemon is one run of libvirtd.
type daemon struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it ended
	err   error         // how, once ended is closed
}

// environment places all of libvirt's files under dir, which is libvirt's own
// runtime folder ($XDG_RUNTIME_DIR/libvirt).
func environment(dir string) []string {
	return []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + dir,
		"XDG_RUNTIME_DIR=" + filepath.Dir(dir),
		"XDG_CONFIG_HOME=" + filepath.Join(dir, "config"),
		"XDG_CACHE_HOME=" + filepath.Join(dir, "cache"),
		"XDG_DATA_HOME=" + filepath.Join(dir, "data"),
		"MALLOC_ARENA_MAX=1", // a heap for each thread costs more than it gains here
		"MALLOC_TRIM_THRESHOLD_=65536",
	}
}

// writeConfiguration writes libvirt's settings below dir. kvm is the path of the device
// that is there where the guest may run with KVM.
func writeConfiguration(dir, kvm string) error {
	qemu := qemuConf
	if _, err := os.Stat(kvm); errors.Is(err, fs.ErrNotExist) {
		qemu += emulationConf
	}
	var volume unix.Statfs_t
	if err := unix.Statfs(names.LauncherHugepagesDir, &volume); err == nil && volume.Type == unix.HUGETLBFS_MAGIC {
		qemu += fmt.Sprintf(hugepagesConf, names.LauncherHugepagesDir)
	}
	folder := filepath.Join(dir, "config", "libvirt")
	if err := os.MkdirAll(folder, 0o770); err != nil {
		return fmt.Errorf("making libvirt's folder: %w", err)
	}
	for name, content := range map[string]string{"libvirtd.conf": libvirtdConf, "qemu.conf": qemu} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o660); err != nil {
			return fmt.Errorf("configuring libvirt: %w", err)
		}
	}
	return nil
}

// startDaemon starts libvirtd. Its messages are passed on to log, a record a line.
func startDaemon(children *process.Table, program, dir string, log *slog.Logger) (*daemon, error) {
	// A socket of an earlier run would be taken for this one's.
	if err := os.Remove(filepath.Join(dir, socketName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing libvirt's earlier socket: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe for libvirtd's messages: %w", err)
	}
	//nolint:noctx // the daemon outlives every call: stop ends it, after the domain
	cmd := exec.Command(program, "--config", filepath.Join(dir, "config", "libvirt", "libvirtd.conf"))
	cmd.Env, cmd.Dir, cmd.Stderr = environment(dir), "/", write
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // signals to the launcher's group are the launcher's
	err = children.Start(cmd)
	_ = write.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(err, read.Close())
	}
	go passOn(read, log)
	d := &daemon{cmd: cmd, ended: make(chan struct{})}
	go func() {
		d.err = children.Wait(cmd)
		close(d.ended)
	}()
	return d, nil
}

// noKVM is said by libvirt again and again where there is no KVM, which is no error.
const noKVM = "Unable to open /dev/kvm: No such file"

// passOn logs what libvirtd says: errors show as warnings, for callers get them too
// and decide. QEMU inherits nothing of the pipe, so it ends with the daemon.
func passOn(messages io.ReadCloser, log *slog.Logger) {
	defer func() { _ = messages.Close() }()
	lines := bufio.NewScanner(messages)
	for lines.Scan() {
		line := lines.Text()
		if strings.Contains(line, ": error :") && !strings.Contains(line, noKVM) {
			log.Warn("Message of libvirtd", "text", line)
		} else {
			log.Debug("Message of libvirtd", "text", line)
		}
	}
}

// stop ends the daemon, by force when it does not end otherwise; its domain goes on.
func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(unix.SIGTERM) // it may have ended by itself
	timer := time.AfterFunc(stopTimeout, func() { _ = d.cmd.Process.Kill() })
	defer timer.Stop()
	<-d.ended
}

// reachable waits until connect succeeds: it tries when the daemon's socket appears
// in dir, and shortly again while nobody listens on it yet.
func (d *daemon) reachable(ctx context.Context, dir string, connect func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching for libvirt's socket: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(dir); err != nil {
		return fmt.Errorf("watching for libvirt's socket: %w", err)
	}
	var lastErr error
	for {
		var retry <-chan time.Time
		if _, err := os.Stat(filepath.Join(dir, socketName)); err == nil {
			if lastErr = connect(); lastErr == nil {
				return nil
			}
			retry = time.After(listenRetry)
		}
		select {
		case <-retry:
		case <-watcher.Events:
		case <-d.ended:
			return fmt.Errorf("libvirtd ended before it could be used: %w", errors.Join(d.err, lastErr))
		case <-ctx.Done():
			return fmt.Errorf("waiting for libvirtd: %w", errors.Join(ctx.Err(), lastErr))
		}
	}
}
