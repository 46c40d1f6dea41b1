// Package cluster brings the local cluster up and down: it joins what the
// sibling packages know into the program's commands.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-vm/slipway/hack/cluster/internal/build"
	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
	"github.com/slipway-vm/slipway/hack/cluster/internal/machine"
	"github.com/slipway-vm/slipway/hack/cluster/internal/process"
)

// Program is one run of the command line.
type Program struct {
	// Cluster is the checkout's cluster.
	Cluster layout.Cluster
	// Components is the folder of the components' modules.
	Components string
	// Cache keeps builds and images for every checkout.
	Cache string
	// Out takes what is said.
	Out io.Writer

	began time.Time
}

// New finds the checkout that the program was started in: the folder with
// hack/cluster/components, from the working folder upwards.
func New(out io.Writer) (*Program, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding the checkout: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		components := filepath.Join(at, "hack", "cluster", "components")
		if _, err := os.Stat(components); err == nil {
			cache, err := cacheDir()
			if err != nil {
				return nil, err
			}
			return &Program{Cluster: layout.New(at), Components: components, Cache: cache, Out: out, began: time.Now()}, nil
		}
		if at == filepath.Dir(at) {
			return nil, fmt.Errorf("no checkout of the project at or above %s; start this in one", dir)
		}
	}
}

// cacheDir is ~/.cache/slipway, or what SLIPWAY_CACHE names.
func cacheDir() (string, error) {
	if dir := os.Getenv("SLIPWAY_CACHE"); dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache: %w; set SLIPWAY_CACHE", err)
	}
	return filepath.Join(home, ".cache", "slipway"), nil
}

// say prints one line with the time since the start.
func (p *Program) say(format string, args ...any) {
	fmt.Fprintf(p.Out, "[%5.1fs] %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// records are the processes of the active cluster.
func records() process.Records { return process.Records(machine.RecordsDir()) }

// lock keeps other runs of the program off the machine.
func (p *Program) lock() (func(), error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the local cluster needs root: start this with sudo -E, or as root")
	}
	if err := os.MkdirAll(layout.MachineDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the machine's record: %w", err)
	}
	return build.Lock(filepath.Join(layout.MachineDir, "lock"), func() {
		p.say("waiting for another run of this program to end")
	})
}

// patience is how long what is awaited may take on a busy machine.
const patience = 5 * time.Minute

// await calls check until it says nothing is missing, and prints what is
// awaited; the error ends with the named log's last lines.
func (p *Program) await(ctx context.Context, what string, timeout time.Duration, log string, check func() (missing string)) error {
	began, last, printed := time.Now(), "", time.Time{}
	for {
		missing := check()
		if missing == "" {
			p.say("%s: ready", what)
			return nil
		}
		if time.Since(began) > timeout {
			return fmt.Errorf("waited %s for %s; missing: %s%s", timeout, what, missing, p.logTail(log))
		}
		if missing != last && time.Since(printed) > 2*time.Second || time.Since(printed) > 10*time.Second {
			p.say("waiting for %s: %s", what, short(missing))
			last, printed = missing, time.Now()
		}
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		}
	}
}

// short is the start of the first line of a text.
func short(text string) string {
	const most = 200
	line, _, more := strings.Cut(text, "\n")
	if len(line) > most {
		line, more = line[:most], true
	}
	if more {
		line += " …"
	}
	return line
}

// logTail returns the last lines of a component's log.
func (p *Program) logTail(name string) string {
	if name == "" {
		return ""
	}
	b, err := os.ReadFile(p.Cluster.Log(name))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return fmt.Sprintf("\nlast lines of %s:\n%s", p.Cluster.Log(name), strings.Join(lines[max(0, len(lines)-25):], "\n"))
}

// Kubectl runs kubectl on the cluster with the program's own input and output.
func (p *Program) Kubectl(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, p.Cluster.Bin("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.Cluster.Kubeconfig())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// Env prints what a shell needs to use the cluster.
func (p *Program) Env() {
	fmt.Fprintf(p.Out, "export KUBECONFIG=%s\nexport PATH=%s:$PATH\n", p.Cluster.Kubeconfig(), filepath.Dir(p.Cluster.Bin("x")))
}
