package process

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Component is one program that the supervisor keeps running.
type Component struct {
	// Name is the name of its record and log.
	Name string `json:"name"`
	// Command is the program and its arguments.
	Command []string `json:"command"`
	// Env is added to the supervisor's environment, and to how Go collects garbage there.
	Env []string `json:"env,omitempty"`
	// After names what must be there before the program starts: unix:PATH or
	// tcp:HOST:PORT takes connections, an https URL answers with success.
	After []string `json:"after,omitempty"`
	// Log is the file that takes its output.
	Log string `json:"log"`
	// Inputs is a hash of the files that it reads at its start; a change means a restart.
	Inputs string `json:"inputs,omitempty"`
}

// restartDelay is the first pause before a program that ended is started again;
// it doubles up to maxDelay while the program keeps ending.
const (
	restartDelay = 500 * time.Millisecond
	maxDelay     = 15 * time.Second
	settled      = 30 * time.Second
)

// Supervise keeps the components running until the context is done. Components
// that run already are adopted. It leaves them running when it returns.
func Supervise(ctx context.Context, records Records, components []Component, say func(string, ...any)) {
	var all sync.WaitGroup
	for _, c := range components {
		all.Go(func() { keep(ctx, records, c, say) })
	}
	all.Wait()
}

// keep runs one component again and again.
func keep(ctx context.Context, records Records, c Component, say func(string, ...any)) {
	delay := restartDelay
	for ctx.Err() == nil {
		began := time.Now()
		if err := runOnce(ctx, records, c, say); err != nil {
			say("%s: %v", c.Name, err)
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > settled {
			delay = restartDelay
		}
		say("%s ended after %s, starting it again in %s", c.Name, time.Since(began).Round(time.Millisecond), delay)
		pause(ctx, delay)
		delay = min(2*delay, maxDelay)
	}
}

// lasting is how Go's components collect their garbage. Whoever starts the cluster may be told not to collect his own, as
// compilers are: what runs for as long as the cluster would fill the machine.
var lasting = []string{"GOGC=400", "GOMEMLIMIT=2GiB"}

// runOnce adopts or starts a component and returns when it has ended.
func runOnce(ctx context.Context, records Records, c Component, say func(string, ...any)) error {
	if id, alive := records.Get(c.Name); alive {
		say("%s runs already as process %d", c.Name, id.Pid)
		return id.Wait(ctx)
	}
	for _, target := range c.After {
		for !accepts(ctx, target) {
			if !pause(ctx, 100*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	cmd := exec.Command(c.Command[0], c.Command[1:]...) //nolint:noctx // it outlives the supervisor
	cmd.Env = slices.Concat(os.Environ(), lasting, c.Env)
	id, err := Start(cmd, c.Log)
	if err != nil {
		return err
	}
	say("%s started as process %d", c.Name, id.Pid)
	if err := records.Put(c.Name, id); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("process %d: %w", id.Pid, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// anyServer asks without a look at the certificate: the answer is only a start signal.
var anyServer = &http.Client{
	Timeout:   2 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}, //nolint:gosec // see above
}

// accepts tells whether a target is there.
func accepts(ctx context.Context, target string) bool {
	if strings.HasPrefix(target, "https://") {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return false
		}
		response, err := anyServer.Do(request)
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	network, address, _ := strings.Cut(target, ":")
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// pause waits for d; false when the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
