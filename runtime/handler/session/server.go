package session

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Pod is a launcher pod, or an attachment pod, on this node.
type Pod struct {
	UID       types.UID
	Namespace string
	Name      string
	// VMI and VMIUID are the machine that the pod was made for.
	VMI    string
	VMIUID types.UID
	// Volume is the VMI's volume that an attachment pod holds; empty for a launcher pod.
	Volume string
}

// Server makes and serves the sockets of launcher pods.
type Server struct {
	kubeletRoot string
	changed     func(vmi types.NamespacedName)
	begun       chan *Session

	mu       sync.Mutex
	sessions map[types.UID]*Session
}

// NewServer serves pods whose volumes lie under kubeletRoot, and calls changed whenever
// something is new about a VMI's session. Nothing is served before Start runs.
func NewServer(kubeletRoot string, changed func(vmi types.NamespacedName)) *Server {
	return &Server{
		kubeletRoot: kubeletRoot, changed: changed,
		begun: make(chan *Session), sessions: map[types.UID]*Session{},
	}
}

// Start serves sessions until ctx is done.
func (s *Server) Start(ctx context.Context) error {
	directories, err := newDirectories()
	if err != nil {
		return fmt.Errorf("watching pods' directories: %w", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { directories.run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case session := <-s.begun:
			running.Go(func() { s.serve(ctx, directories, session) })
		}
	}
}

// Ensure returns the pod's session; a new one is served from then on.
func (s *Server) Ensure(ctx context.Context, pod Pod) (*Session, error) {
	s.mu.Lock()
	session, found := s.sessions[pod.UID]
	if !found {
		vmi := types.NamespacedName{Namespace: pod.Namespace, Name: pod.VMI}
		session = newSession(pod, func() { s.changed(vmi) })
		s.sessions[pod.UID] = session
	}
	s.mu.Unlock()
	if found {
		return session, nil
	}
	select {
	case s.begun <- session:
		return session, nil
	case <-ctx.Done():
		s.Forget(pod.UID)
		return nil, fmt.Errorf("beginning to serve pod %s: %w", pod.Name, ctx.Err())
	}
}

// Session returns the session of the pod with uid, or nil when it is not served.
func (s *Server) Session(uid types.UID) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[uid]
}

// OfVMI returns the session of the VMI with uid: of several pods the one whose launcher is
// connected; nil when there is none.
func (s *Server) OfVMI(uid types.UID) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *Session
	for _, session := range s.sessions {
		if session.pod.VMIUID != uid || session.pod.Volume != "" {
			continue
		}
		if _, err := session.connected(); err == nil {
			return session
		}
		found = session
	}
	return found
}

// Forget ends the session of a pod that is gone.
func (s *Server) Forget(uid types.UID) {
	s.mu.Lock()
	session := s.sessions[uid]
	delete(s.sessions, uid)
	s.mu.Unlock()
	if session != nil {
		session.end()
	}
}

// serve runs a session until it or ctx ends.
func (s *Server) serve(ctx context.Context, directories *directories, session *Session) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	logger := log.FromContext(ctx).WithValues("pod", session.pod.Name, "namespace", session.pod.Namespace)
	ctx = log.IntoContext(ctx, logger)
	go func() {
		select {
		case <-session.ended:
			stop()
		case <-ctx.Done():
		}
	}()
	defer session.release()
	if session.pod.Volume == "" {
		go session.watch(ctx)
	}
	directory, err := directories.await(ctx, s.kubeletRoot, socketsDirectory(session.pod.UID))
	if err == nil {
		err = session.listen(ctx, directory)
	}
	if err != nil && ctx.Err() == nil {
		logger.Error(err, "Serving the launcher pod's socket failed")
		session.fail(err)
	}
}
