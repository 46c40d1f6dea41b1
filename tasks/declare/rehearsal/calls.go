package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// errKilled is what a task's client says once its pod is "killed".
var errKilled = errors.New("the pod was killed")

// calls are the calls that a task made, as "verb resource".
type calls struct {
	mu   sync.Mutex
	task *declare.Task
	made map[string]bool
}

func (c *calls) add(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[call] = true
}

// wire carries the calls of one process to the API server, counts its writes, and cuts it off.
type wire struct {
	base  http.RoundTripper
	calls *calls
	// kill is the number of the write at which the process dies, from 0; -1 for never.
	kill int
	// lost says that this write still reaches the API server.
	lost bool
	stop context.CancelFunc
	// watching is called once, after the first watch began.
	watching   func()
	background sync.WaitGroup

	mu        sync.Mutex
	writes    int
	dead      bool
	forbidden []string
}

// RoundTrip is one call.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	call := callOf(r)
	send, die := w.admit(r.Method != http.MethodGet)
	if die {
		defer w.stop()
	}
	if !send {
		return nil, errKilled
	}
	w.calls.add(call)
	response, err := w.base.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // a RoundTripper changes nothing
	}
	if strings.HasPrefix(call, "watch ") {
		w.begin()
	}
	if response.StatusCode == http.StatusForbidden {
		w.mu.Lock()
		w.forbidden = append(w.forbidden, call+" "+r.URL.Path)
		w.mu.Unlock()
	}
	if die {
		_ = response.Body.Close()
		return nil, errKilled
	}
	return response, nil
}

// begin calls watching for the first time.
func (w *wire) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watching != nil {
		w.background.Go(w.watching)
	}
	w.watching = nil
}

// admit says whether the call is sent, and whether the process dies at it.
func (w *wire) admit(write bool) (send, die bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return false, false
	}
	if !write {
		return true, false
	}
	w.dead = w.writes == w.kill
	w.writes++
	return !w.dead || w.lost, w.dead
}

// callOf names a request as RBAC does: its verb and its resource with the subresource.
func callOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	skip := 2 // api/v1
	if parts[0] == "apis" {
		skip = 3
	}
	if len(parts) > skip+1 && parts[skip] == "namespaces" {
		skip += 2
	}
	if len(parts) <= skip {
		return "discover " + r.URL.Path
	}
	resource, named := parts[skip], len(parts) > skip+1
	if len(parts) > skip+2 {
		resource += "/" + parts[skip+2]
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	switch {
	case r.Method != http.MethodGet:
	case named:
		verb = "get"
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		verb = "watch"
	default:
		verb = "list"
	}
	return fmt.Sprintf("%s %s", verb, resource)
}
