package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
)

// socketsDirectory is where the kubelet keeps the sockets volume of a pod, as segments
// under its root.
func socketsDirectory(pod types.UID) []string {
	return []string{"pods", string(pod), "volumes", "kubernetes.io~empty-dir", names.VolumeSockets}
}

// directories waits for directories to appear, with one inotify instance for all.
type directories struct {
	watcher *fsnotify.Watcher

	mu      sync.Mutex
	waiters map[string]int // by watched path
	event   chan struct{}  // closed at the next event
}

func newDirectories() (*directories, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("making an inotify instance (see sysctl fs.inotify.max_user_instances): %w", err)
	}
	return &directories{watcher: watcher, waiters: map[string]int{}, event: make(chan struct{})}, nil
}

// run passes events on to those who wait, until ctx is done.
func (d *directories) run(ctx context.Context) {
	defer d.watcher.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.watcher.Events:
			d.wake()
		case err := <-d.watcher.Errors:
			log.FromContext(ctx).Error(err, "Watching directories failed for once")
			d.wake() // events may be lost: all look again
		}
	}
}

func (d *directories) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.event)
	d.event = make(chan struct{})
}

// await opens the directory root/segments..., once it is there. Below root no symbolic
// link is followed: what lies there is partly in the hands of pods.
func (d *directories) await(ctx context.Context, root string, segments []string) (*os.File, error) {
	for {
		d.mu.Lock()
		event := d.event // taken before looking, so that nothing is missed
		d.mu.Unlock()
		file, deepest, err := descend(root, segments)
		if file != nil || err != nil {
			return file, err
		}
		added, err := d.watch(deepest)
		if err != nil {
			return nil, err
		}
		if !added { // it went away meanwhile
			continue
		}
		file, now, err := descend(root, segments)
		if file != nil || err != nil || now != deepest {
			d.unwatch(deepest)
			if file != nil || err != nil {
				return file, err
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-event:
		}
		d.unwatch(deepest)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("waiting for %s: %w", filepath.Join(append([]string{root}, segments...)...), ctx.Err())
		}
	}
}

// watch reports false when path is gone.
func (d *directories) watch(path string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiters[path] == 0 {
		err := d.watcher.Add(path)
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("watching %s (see sysctl fs.inotify.max_user_watches): %w", path, err)
		}
	}
	d.waiters[path]++
	return true, nil
}

func (d *directories) unwatch(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiters[path]--
	if d.waiters[path] == 0 {
		delete(d.waiters, path)
		_ = d.watcher.Remove(path) // it is no longer watched when the directory is gone
	}
}

// descend opens root/segments..., or returns the deepest directory that is there.
func descend(root string, segments []string) (file *os.File, deepest string, err error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", fmt.Errorf("opening the kubelet's root %s (set --kubelet-root to where it is): %w", root, err)
	}
	deepest = root
	for _, segment := range segments {
		next, err := unix.Openat(fd, segment, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd)
		if errors.Is(err, unix.ENOENT) {
			return nil, deepest, nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("opening %s in %s: %w", segment, deepest, err)
		}
		fd, deepest = next, filepath.Join(deepest, segment)
	}
	return os.NewFile(uintptr(fd), deepest), deepest, nil
}
