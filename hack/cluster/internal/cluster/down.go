package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/hack/cluster/internal/config"
	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
	"github.com/slipway-vm/slipway/hack/cluster/internal/machine"
	"github.com/slipway-vm/slipway/hack/cluster/internal/process"
)

// podGrace is how long the processes of pods have to end, guests included.
const podGrace = 15 * time.Second

// stopOrder is the order in which components end; containerd is among the last,
// and containers end before it.
var stopOrder = []string{"kube-scheduler", "kube-controller-manager", "kube-proxy", "kube-apiserver", "etcd"}

// Down ends the active cluster, whichever checkout it belongs to, and takes its
// traces off the machine; its data stays.
func (p *Program) Down(ctx context.Context) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	active, err := machine.Load()
	if err != nil {
		return err
	}
	if active == nil {
		p.say("no cluster is active on this machine")
		return nil
	}
	if active.Cluster.State != p.Cluster.State {
		p.say("ending the cluster of %s", active.Cluster.Checkout)
	}
	return p.end(ctx, active)
}

// Reset ends the checkout's cluster and removes its data.
func (p *Program) Reset(ctx context.Context) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	active, err := machine.Load()
	if err != nil {
		return err
	}
	if active != nil && active.Cluster.State == p.Cluster.State {
		if err := p.end(ctx, active); err != nil {
			return err
		}
	}
	for _, n := range p.Cluster.Nodes {
		if err := machine.DetachPool(n); err != nil {
			return err
		}
	}
	if err := machine.UnmountBelow(p.Cluster.State); err != nil {
		return err
	}
	if err := os.RemoveAll(p.Cluster.State); err != nil {
		return fmt.Errorf("removing the cluster's data: %w", err)
	}
	if err := os.RemoveAll(filepath.Join(p.Cluster.Checkout, ".cluster")); err != nil {
		return fmt.Errorf("removing the link to the cluster's data: %w", err)
	}
	p.say("the cluster's data is removed")
	return nil
}

// end stops every process of a cluster and undoes what was done to the machine.
func (p *Program) end(ctx context.Context, active *machine.Record) error {
	began := time.Now()
	stop := func(name string) error {
		id, alive := records().Get(name)
		if !alive {
			return nil
		}
		if err := id.Stop(ctx, 20*time.Second); err != nil {
			return fmt.Errorf("ending %s: %w", name, err)
		}
		return nil
	}
	if err := stop("supervisor"); err != nil {
		return err
	}
	for _, n := range active.Cluster.Nodes { // so that nobody starts containers again
		if err := stop(config.Name(active.Cluster, n, "kubelet")); err != nil {
			return err
		}
	}
	var all *multierror.Error
	if err := p.endPods(ctx); err != nil {
		all = multierror.Append(all, err)
	}
	p.say("ending the control plane")
	for _, name := range append(slices.Clone(stopOrder), otherRecords()...) {
		if err := stop(name); err != nil {
			all = multierror.Append(all, err)
		}
	}
	for _, n := range active.Cluster.Nodes {
		if err := endShims(ctx, n); err != nil {
			all = multierror.Append(all, err)
		}
	}
	if err := active.Undo(ctx); err != nil {
		all = multierror.Append(all, err)
	}
	if err := all.ErrorOrNil(); err != nil {
		return fmt.Errorf("ending the cluster of %s: %w; run down again", active.Cluster.Checkout, err)
	}
	if err := machine.Remove(); err != nil {
		return err
	}
	p.say("the cluster is down after %.1fs; its data stays in %s", time.Since(began).Seconds(), active.Cluster.State)
	return nil
}

// otherRecords are the recorded processes that the order does not name.
func otherRecords() []string {
	files, err := filepath.Glob(filepath.Join(machine.RecordsDir(), "*.json"))
	if err != nil {
		return nil
	}
	var names []string
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".json"); !slices.Contains(stopOrder, name) {
			names = append(names, name)
		}
	}
	return names
}

// endPods ends the processes of all pods. The first process of each container is
// asked to end and has time for it, a guest needs it; the cluster's own pods keep
// nothing and have no need of it.
func (p *Program) endPods(ctx context.Context) error {
	processes := machine.PodProcesses()
	if len(processes) == 0 {
		return nil
	}
	p.say("ending %d processes of pods (%s at the most)", len(processes), podGrace)
	var asked []process.Identity
	for _, id := range processes {
		if id.FirstInNamespace() && !own(id) {
			asked = append(asked, id)
		}
	}
	if err := endAll(ctx, asked, podGrace); err != nil {
		return err
	}
	for range 20 {
		left := machine.PodProcesses()
		if len(left) == 0 {
			return nil
		}
		for _, id := range left {
			if err := id.Signal(unix.SIGKILL); err != nil {
				return err
			}
		}
		if err := endAll(ctx, left, time.Second); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d processes of pods do not end", len(machine.PodProcesses()))
}

// own tells whether a process runs a program of the cluster's own images.
func own(id process.Identity) bool {
	program := id.Program()
	return strings.HasPrefix(program, "/ko-app/") || program == "/coredns" || program == "/pause"
}

// endAll stops processes side by side.
func endAll(ctx context.Context, processes []process.Identity, grace time.Duration) error {
	var (
		all   *multierror.Error
		guard sync.Mutex
		done  sync.WaitGroup
	)
	for _, id := range processes {
		done.Go(func() {
			if err := id.Stop(ctx, grace); err != nil {
				guard.Lock()
				defer guard.Unlock()
				all = multierror.Append(all, err)
			}
		})
	}
	done.Wait()
	return all.ErrorOrNil()
}

// endShims ends the shims of a node's containers, which outlive containerd.
func endShims(ctx context.Context, n layout.Node) error {
	shims := process.All(func(cmdline []string) bool {
		return strings.HasPrefix(filepath.Base(cmdline[0]), "containerd-shim") && slices.Contains(cmdline, n.ContainerdSocket())
	})
	return endAll(ctx, shims, 3*time.Second)
}
