package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/runtime/handler/process"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Bounds on what a pod can make the handler keep.
const (
	maxConnections = 16
	maxDisks       = 64
)

// ErrNotConnected is returned by calls that need the launcher while it is away; the
// session reports a change when it is back.
var ErrNotConnected = errors.New("the launcher is not connected")

// Session is what is known of the processes of one launcher pod. Its methods may be
// called from any goroutine.
type Session struct {
	pod     Pod
	changed func()
	ended   chan struct{}
	ending  sync.Once

	mu       sync.Mutex
	launcher *client // nil while none is connected
	holder   *client // of an attachment pod; nil while none is connected
	state    *protocol.State
	reports  int // states that came as events
	disks    map[string]*os.File
	asked    map[string]time.Time // when the guest was last asked to let go of a disk
	absent   time.Time            // since when no launcher is connected, while none is
	silence  *protocol.Silence    // what does not answer; nil for nothing
	silenced chan struct{}        // closed when silence is set, made anew when it is not any more
	failure  error
}

func newSession(pod Pod, changed func()) *Session {
	return &Session{
		pod: pod, changed: changed, ended: make(chan struct{}), absent: time.Now(), silenced: make(chan struct{}),
		disks: map[string]*os.File{}, asked: map[string]time.Time{},
	}
}

// View is a session at one moment.
type View struct {
	// Launcher is the connected launcher's process; nil while it is away.
	Launcher *process.Process
	// Synced is the last Sync that this launcher took over this connection; nil for none.
	Synced *Synced
	// ShuttingDown says that this launcher was asked to end its guest over this connection.
	ShuttingDown bool
	// State is what a launcher last said; nil before it said anything.
	State *protocol.State
	// Disks are the volumes whose container disks were handed over, in order of name.
	Disks []string
	// Silence is which part of the VM does not answer, or that no launcher is connected; nil
	// when all is well.
	Silence *protocol.Silence
	// Heard says that this launcher has answered, over this connection, how its VM is.
	Heard bool
	// Failure is why the pod's socket cannot be served.
	Failure error
}

// Synced is what a launcher was told to run.
type Synced struct {
	// Key names what the facts were made from.
	Key   string
	Facts protocol.Facts
	// PodInterface is the pod's own interface, through which the guest is reached.
	PodInterface string
}

// View returns what is known now.
func (s *Session) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	view := View{Failure: s.failure, Silence: s.silence}
	if s.launcher != nil {
		view.Launcher, view.Synced, view.ShuttingDown = s.launcher.process, s.launcher.synced, s.launcher.shuttingDown
		view.Heard = s.launcher.heard
	}
	if s.state != nil {
		state := *s.state
		view.State = &state
	}
	for volume := range s.disks {
		view.Disks = append(view.Disks, volume)
	}
	slices.Sort(view.Disks)
	return view
}

// ReleaseDisks closes the container disks, which the launcher has by now.
func (s *Session) ReleaseDisks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for volume, file := range s.disks {
		_ = file.Close()
		delete(s.disks, volume)
	}
}

// listen serves the pod's socket in directory until ctx is done.
func (s *Session) listen(ctx context.Context, directory *os.File) error {
	listener, err := listenIn(directory)
	_ = directory.Close()
	if err != nil {
		return fmt.Errorf("making the socket of pod %s: %w", s.pod.Name, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	log.FromContext(ctx).V(1).Info("Serving the launcher pod's socket")
	slots := make(chan struct{}, maxConnections)
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		socket, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting connections of pod %s: %w", s.pod.Name, err)
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = socket.Close()
			log.FromContext(ctx).Info("Refusing a connection of the pod: it has too many", "bound", maxConnections)
			continue
		}
		serving.Go(func() {
			defer func() { <-slots }()
			s.converse(ctx, socket)
		})
	}
}

// keepDisk holds on to a container disk; a second one for a volume replaces the first.
func (s *Session) keepDisk(volume string, file *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.disks[volume]; old != nil {
		_ = old.Close()
	} else if len(s.disks) >= maxDisks {
		return fmt.Errorf("a pod hands over at most %d container disks", maxDisks)
	}
	s.disks[volume] = file
	return nil
}

// report keeps the launcher's state and tells of the change.
func (s *Session) report(state protocol.State) {
	s.mu.Lock()
	s.state = &state
	s.reports++
	s.mu.Unlock()
	s.changed()
}

func (s *Session) fail(err error) {
	s.mu.Lock()
	s.failure = err
	s.mu.Unlock()
	s.changed()
}

func (s *Session) end() { s.ending.Do(func() { close(s.ended) }) }

// release lets go of what the session holds.
func (s *Session) release() { s.ReleaseDisks() }
