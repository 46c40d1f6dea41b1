package controllers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// taking is the API server, for leases.
type taking struct {
	resourcelock.Interface
	late   func() // what happens while it is asked
	refuse error
}

func (*taking) Identity() string { return "me" }

func (l *taking) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *taking) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	l.late()
	return l.refuse
}

// A process writes before it leads, while its lease holds, and once it is renewed, but never while another may lead.
func TestNothingIsWrittenAfterTheLease(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer server.Close()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	lock := &taking{late: func() {}}
	l := &lead{Interface: lock, duration: time.Minute, now: func() time.Time { return now }}
	asking := &http.Client{Transport: l.guard(http.DefaultTransport)}
	writes := func(when string, want bool) {
		t.Helper()
		for method, allowed := range map[string]bool{
			http.MethodGet: true, http.MethodPost: want, http.MethodPut: want, http.MethodPatch: want, http.MethodDelete: want,
		} {
			request, err := http.NewRequestWithContext(t.Context(), method, server.URL, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := asking.Do(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if allowed && err != nil || !allowed && !errors.Is(err, errLapsed) {
				t.Errorf("%s, %s: %v", when, method, err)
			}
		}
	}
	mine, nobodys := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{}
	renew := func(record resourcelock.LeaderElectionRecord) {
		t.Helper()
		if err := l.Update(t.Context(), record); !errors.Is(err, lock.refuse) {
			t.Fatal(err)
		}
	}

	writes("before it leads", true)
	if err := l.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	now = now.Add(59 * time.Second)
	writes("while it leads", true)
	lock.refuse = errors.New("no answer")
	renew(mine)
	now = now.Add(time.Second)
	writes("after a renewal that failed", false)
	lock.refuse = nil
	renew(mine)
	writes("once it leads again", true)
	lock.late = func() { now = now.Add(61 * time.Second) } // it stands still after it has asked
	renew(mine)
	writes("after a renewal that came long ago", false)
	lock.late = func() {}
	renew(nobodys)
	writes("after it has let go", true)
}
