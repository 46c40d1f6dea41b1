package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-vm/slipway/hack/cluster/internal/config"
	"github.com/slipway-vm/slipway/hack/cluster/internal/machine"
)

// Up brings the cluster up, from whatever state it and the machine are in.
func (p *Program) Up(ctx context.Context) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.takeOver(ctx); err != nil {
		return err
	}
	if err := machine.Install(ctx, p.say); err != nil {
		return err
	}
	built, err := p.Build(ctx)
	if err != nil {
		return err
	}
	made, err := p.makeImages(ctx, built)
	if err != nil {
		return err
	}
	if err := p.Cluster.Prepare(); err != nil {
		return err
	}
	if err := p.link(built); err != nil {
		return err
	}
	facts := machine.Detect(ctx)
	facts.PauseImage = made["pause"].Ref
	if err := p.prepareMachine(ctx, facts); err != nil {
		return err
	}
	if err := p.configure(facts); err != nil {
		return err
	}
	resumed, err := p.start(ctx)
	if err != nil {
		return err
	}
	if err := p.populate(ctx, made, facts, resumed); err != nil {
		return err
	}
	p.say("the cluster is up; kubeconfig: %s", p.Cluster.Kubeconfig())
	return nil
}

// takeOver ends what another checkout's cluster left on the machine; its data stays.
func (p *Program) takeOver(ctx context.Context) error {
	active, err := machine.Load()
	if err != nil || active == nil || active.Cluster.State == p.Cluster.State {
		return err
	}
	p.say("the cluster of %s is active on this machine; ending it (its data stays in %s)", active.Cluster.Checkout, active.Cluster.State)
	return p.end(ctx, active)
}

// prepareMachine does to the machine what its nodes need.
func (p *Program) prepareMachine(ctx context.Context, facts config.Facts) error {
	active, err := machine.Load()
	if err != nil {
		return err
	}
	if active == nil {
		if rival := machine.Rivals(); rival != "" {
			return fmt.Errorf("another Kubernetes runs on this machine: %s; stop it, or use it with CLUSTER=existing", rival)
		}
		collision, err := machine.Collision(ctx)
		if err != nil {
			return err
		}
		if collision != "" {
			return fmt.Errorf("this machine has a network of its own in the way: %s; take it down, or use another cluster with CLUSTER=existing", collision)
		}
		active = &machine.Record{}
	}
	active.Cluster = p.Cluster
	if err := active.Prepare(ctx, facts, p.say); err != nil {
		return err
	}
	for _, n := range p.Cluster.Nodes {
		for _, dir := range []string{n.KubeletRoot(), n.ContainerdRoot(), n.CNIConf(), filepath.Join(n.Dir, "run"), filepath.Join(n.Dir, "log", "pods"), n.Conf("")} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("making the folders of node %s: %w", n.Name, err)
			}
		}
	}
	return nil
}
