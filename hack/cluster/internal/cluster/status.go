package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/slipway-vm/slipway/hack/cluster/internal/kube"
	"github.com/slipway-vm/slipway/hack/cluster/internal/machine"
)

// Status is what the cluster looks like to other programs.
type Status struct {
	// Running tells that this checkout's cluster is active and its API server answers.
	Running bool `json:"running"`
	// Kubeconfig is the administrator's kubeconfig.
	Kubeconfig string `json:"kubeconfig"`
	// Bin is the folder with kubectl, kube-apiserver and etcd.
	Bin string `json:"bin"`
	// KubeletRoot is the first node's kubelet root.
	KubeletRoot string `json:"kubeletRoot"`
	// ContainerdSocket is the first node's containerd socket.
	ContainerdSocket string `json:"containerdSocket"`
	// PoolPath is the first node's storage pool.
	PoolPath string `json:"poolPath"`
	// PoolType is the pool's file system: xfs and btrfs clone, a folder copies.
	PoolType string `json:"poolType"`
	// NodeName is the first node's name.
	NodeName string `json:"nodeName"`
	// NodeIP is its address; the host is reached there from pods.
	NodeIP string `json:"nodeIP"`
	// Shell is a local image with a shell and small tools.
	Shell string `json:"shell"`
	// Log is the folder of the components' logs.
	Log string `json:"log"`
}

// Status finds out how the cluster is.
func (p *Program) Status(ctx context.Context) (Status, error) {
	n := p.Cluster.First()
	s := Status{
		Kubeconfig: p.Cluster.Kubeconfig(), Bin: p.Cluster.Bin(""), KubeletRoot: n.KubeletRoot(), ContainerdSocket: n.ContainerdSocket(),
		PoolPath: n.Pool(), PoolType: machine.PoolType(n), NodeName: n.Name, NodeIP: n.IP, Log: p.Cluster.State + "/log",
	}
	active, err := machine.Load()
	if err != nil {
		return s, err
	}
	if active == nil || active.Cluster.State != p.Cluster.State {
		return s, nil
	}
	if client, err := kube.New(p.Cluster); err == nil {
		s.Running = client.Get(ctx, "/readyz", nil) == nil
	}
	if have, err := nodeImages(ctx, n); err == nil {
		for ref := range have {
			if strings.HasPrefix(ref, registry+"busybox:") {
				s.Shell = ref
			}
		}
	}
	return s, nil
}

// PrintStatus prints the status for people, or as JSON.
func (p *Program) PrintStatus(ctx context.Context, asJSON bool) error {
	s, err := p.Status(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		encoder := json.NewEncoder(p.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(s)
	}
	if !s.Running {
		return p.printStopped()
	}
	fmt.Fprintf(p.Out, "running; kubeconfig %s\npool %s (%s)\n\n", s.Kubeconfig, s.PoolPath, s.PoolType)
	components, err := ReadComponents(p.Cluster)
	if err != nil {
		return err
	}
	names := []string{"supervisor"}
	for _, c := range components {
		names = append(names, c.Name)
	}
	for _, name := range names {
		state := "stopped"
		if id, alive := records().Get(name); alive {
			state = fmt.Sprintf("process %d", id.Pid)
		}
		fmt.Fprintf(p.Out, "%-24s %s\n", name, state)
	}
	fmt.Fprintln(p.Out)
	for _, args := range [][]string{{"get", "nodes", "-o", "wide"}, {"get", "pods", "-A"}} {
		if err := p.Kubectl(ctx, args); err != nil {
			return fmt.Errorf("asking for the cluster's objects: %w", err)
		}
		fmt.Fprintln(p.Out)
	}
	return p.printImages(ctx)
}

// printStopped says where else a cluster may run.
func (p *Program) printStopped() error {
	active, err := machine.Load()
	switch {
	case err != nil:
		return err
	case active == nil:
		fmt.Fprintln(p.Out, "not running; start it with: up")
	case active.Cluster.State != p.Cluster.State:
		fmt.Fprintf(p.Out, "not running; the cluster of %s is active on this machine, up takes over\n", active.Cluster.Checkout)
	default:
		fmt.Fprintf(p.Out, "the API server does not answer; logs in %s, resume with: up\n", p.Cluster.State+"/log")
	}
	return nil
}

func (p *Program) printImages(ctx context.Context) error {
	have, err := nodeImages(ctx, p.Cluster.First())
	if err != nil {
		return err
	}
	for _, ref := range sortedKeys(have) {
		if !strings.HasPrefix(ref, "sha256:") && !strings.Contains(ref, "@") {
			fmt.Fprintln(p.Out, ref)
		}
	}
	return nil
}
