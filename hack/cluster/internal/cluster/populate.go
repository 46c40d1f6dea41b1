package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-vm/slipway/hack/cluster/internal/config"
	"github.com/slipway-vm/slipway/hack/cluster/internal/kube"
	"github.com/slipway-vm/slipway/hack/cluster/internal/machine"
)

// populate loads the images, applies the cluster's own objects and waits until
// everything answers.
func (p *Program) populate(ctx context.Context, made images, facts config.Facts, resumed bool) error {
	client, err := kube.New(p.Cluster)
	if err != nil {
		return err
	}
	work, both := errgroup.WithContext(ctx)
	work.Go(func() error { return p.loadOwn(both, made) })
	work.Go(func() error {
		err := p.await(both, "the API server", patience, "kube-apiserver", func() string {
			return notReady(client.Get(both, "/readyz", nil))
		})
		if err != nil {
			return err
		}
		if resumed && len(machine.PodProcesses()) == 0 {
			if err := dropLeases(both, client); err != nil {
				return err
			}
		}
		return p.applyOwn(both, client, made, facts)
	})
	if err := work.Wait(); err != nil {
		return err
	}
	return p.awaitWorkloads(ctx, client)
}

// notReady is what an answer to /readyz says is missing: its lines of checks that fail.
func notReady(err error) string {
	if err == nil {
		return ""
	}
	var failing []string
	for line := range strings.Lines(err.Error()) {
		if check, ok := strings.CutPrefix(line, "[-]"); ok {
			failing = append(failing, strings.Fields(check)[0])
		}
	}
	if len(failing) == 0 {
		return err.Error()
	}
	return strings.Join(failing, ", ")
}

// loadOwn imports the cluster's own images once containerd answers.
func (p *Program) loadOwn(ctx context.Context, made images) error {
	var files []string
	for _, a := range made {
		files = append(files, a.File)
	}
	sort.Strings(files)
	for _, n := range p.Cluster.Nodes {
		err := p.await(ctx, "containerd of "+n.Name, patience, config.Name(p.Cluster, n, "containerd"), func() string {
			if out, err := ctr(ctx, n, "version").CombinedOutput(); err != nil {
				return lastLine(string(out))
			}
			return ""
		})
		if err != nil {
			return err
		}
	}
	return p.Load(ctx, files)
}

// awaitWorkloads waits for the nodes, DNS and Tekton.
func (p *Program) awaitWorkloads(ctx context.Context, client *kube.Client) error {
	for _, n := range p.Cluster.Nodes {
		kubelet := config.Name(p.Cluster, n, "kubelet")
		since := p.startOf(kubelet)
		err := p.await(ctx, "node "+n.Name, patience, kubelet, func() string {
			var node kube.Node
			if err := client.Get(ctx, "/api/v1/nodes/"+n.Name, &node); err != nil {
				return err.Error()
			}
			ready := node.Ready()
			switch {
			case ready.Status != "True":
				return "node is not ready: " + ready.Reason + " " + ready.Message
			case ready.LastHeartbeatTime.Before(since):
				return "no word of its kubelet since the start"
			}
			return ""
		})
		if err != nil {
			return err
		}
	}
	err := p.await(ctx, "CoreDNS and Tekton", patience, "kubelet", func() string {
		missing, err := client.WorkloadsReady(ctx)
		if err != nil {
			return err.Error()
		}
		return missing
	})
	if err != nil {
		return err
	}
	return p.await(ctx, "Tekton's admission", patience, "kube-apiserver", func() string {
		if err := admitted(ctx, client); err != nil {
			return err.Error()
		}
		return ""
	})
}

// startOf is when a component was started, to the second that conditions have.
func (p *Program) startOf(name string) time.Time {
	info, err := os.Stat(filepath.Join(machine.RecordsDir(), name+".json"))
	if errors.Is(err, os.ErrNotExist) || err != nil {
		return time.Now().Truncate(time.Second)
	}
	return info.ModTime().Truncate(time.Second)
}
