package controllers

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lead is a lock that knows how long it holds. A process that has stood still for longer than its lease finds out in its own time that
// another leads; until then its controllers go on with what they know, which is old.
type lead struct {
	resourcelock.Interface

	duration time.Duration
	now      func() time.Time

	mu sync.Mutex
	// renewed is when the last renewal began that the API server took; zero while the lead is not had.
	renewed time.Time
}

// Create takes a lease that nobody has had.
func (l *lead) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update takes, renews or releases the lease.
func (l *lead) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *lead) note(record resourcelock.LeaderElectionRecord, write func() error) error {
	began := l.now()
	err := write()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = time.Time{}
	if record.HolderIdentity == l.Identity() {
		l.renewed = began
	}
	return nil
}

// lapsed says whether the lead was had, and another may have it by now.
func (l *lead) lapsed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero() && l.now().Sub(l.renewed) >= l.duration
}

// errLapsed is the answer to a write of a process whose lease is over.
var errLapsed = errors.New("virt-controller's lease is over, and another process may lead: this one writes nothing more unless it has renewed it")

// guard sends requests by next, and none that changes something once the lead has lapsed.
func (l *lead) guard(next http.RoundTripper) http.RoundTripper { return guarded{l, next} }

type guarded struct {
	lead *lead
	next http.RoundTripper
}

// RoundTrip sends a request, or refuses it.
func (g guarded) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead && g.lead.lapsed() {
		if request.Body != nil {
			_ = request.Body.Close() // nobody reads it
		}
		return nil, errLapsed
	}
	return g.next.RoundTrip(request) //nolint:wrapcheck // it is what it stands for
}
