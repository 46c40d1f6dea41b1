package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/hack/cluster/internal/config"
	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
	"github.com/slipway-vm/slipway/hack/cluster/internal/process"
)

// Prepare makes the machine ready for the cluster's nodes and records what it
// changes before it changes it.
func (r *Record) Prepare(ctx context.Context, f config.Facts, say func(string, ...any)) error {
	if boot := process.BootID(); r.Boot != boot {
		*r = Record{Cluster: r.Cluster, Boot: boot, Sysctls: map[string]string{}}
		r.rememberFilter(ctx)
		r.forgetRun()
	}
	if err := r.Save(); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return r.setSysctls(ctx) },
		r.share,
		func() error { return Cgroups(f.Systemd) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	for _, n := range r.Cluster.Nodes {
		if err := shareDir(n.Dir); err != nil {
			return err
		}
		if err := r.Network(ctx, n, f.MTU); err != nil {
			return fmt.Errorf("making the network of node %s: %w", n.Name, err)
		}
		if err := MountPool(ctx, n, say); err != nil {
			return fmt.Errorf("mounting the pool of node %s: %w", n.Name, err)
		}
	}
	return nil
}

// Rivals names a Kubernetes of another kind that runs in the machine's own network,
// where two would fight over service addresses; "" when there is none.
func Rivals() string {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return ""
	}
	others := process.All(func(cmdline []string) bool {
		return slices.Contains([]string{"kubelet", "kube-proxy", "k3s", "k0s", "kubelite"}, filepath.Base(cmdline[0]))
	})
	for _, id := range others {
		proc := filepath.Join("/proc", strconv.Itoa(id.Pid))
		if ns, err := os.Readlink(filepath.Join(proc, "ns", "net")); err == nil && ns == own {
			return fmt.Sprintf("%s (process %d)", id.Program(), id.Pid)
		}
	}
	return ""
}

// forgetRun removes what only meant something before the machine was booted
// anew: running tasks, address leases, sockets.
func (r *Record) forgetRun() {
	for _, n := range r.Cluster.Nodes {
		for _, dir := range []string{n.ContainerdState(), n.CNIState(), filepath.Join(n.Dir, "run")} {
			if UnmountBelow(dir) == nil { // else what is mounted there would be removed
				_ = os.RemoveAll(dir)
			}
		}
	}
}

// Undo takes the cluster's traces off the machine; its processes have ended.
// Its data stays.
func (r *Record) Undo(ctx context.Context) error {
	var all *multierror.Error
	for _, n := range r.Cluster.Nodes {
		for _, ns := range podNamespaces(ctx, n) {
			if _, err := run(ctx, "ip", "netns", "delete", ns); err != nil {
				all = multierror.Append(all, err)
			}
		}
		if err := r.removeNetwork(ctx, n); err != nil {
			all = multierror.Append(all, err)
		}
		if err := DetachPool(n); err != nil {
			all = multierror.Append(all, err)
		}
		if err := UnmountBelow(n.Dir); err != nil {
			all = multierror.Append(all, err)
		}
		removeLogLinks(n)
	}
	removeDeadSockets(ctx)
	removeCNICache()
	r.forgetRun()
	for _, step := range []func() error{func() error { return removeCgroups(ctx) }, r.unshare, r.restoreSysctls} {
		if err := step(); err != nil {
			all = multierror.Append(all, err)
		}
	}
	for _, dir := range emptied {
		_ = os.Remove(dir) // only when it is empty
	}
	return all.ErrorOrNil()
}

// emptied are folders outside the state folder that components make, children
// first; another's content keeps them.
var emptied = []string{
	"/var/log/containers", "/var/lib/cni/results", "/var/lib/cni", layout.DevicePlugins, filepath.Dir(layout.DevicePlugins),
	"/run/containerd/s", "/run/containerd/fifo", "/run/containerd", "/run/netns",
}

// removeDeadSockets removes the sockets of shims that have ended. They lie outside
// the state folder; one on which nothing listens is of no use to anyone.
func removeDeadSockets(ctx context.Context) {
	files, err := filepath.Glob("/run/containerd/s/*")
	if err != nil {
		return
	}
	for _, file := range files {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", file)
		if err == nil {
			_ = conn.Close()
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(file)
		}
	}
}

// removeLogLinks removes the kubelet's links to logs below the node's folder.
func removeLogLinks(n layout.Node) {
	links, err := filepath.Glob("/var/log/containers/*.log")
	if err != nil {
		return
	}
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil && strings.HasPrefix(target, n.Dir+"/") {
			_ = os.Remove(l)
		}
	}
}

// removeCNICache removes the results that the CNI library kept for the cluster's
// pods: those of its network, and of the same pods' loopback devices.
func removeCNICache() {
	const dir = "/var/lib/cni/results/"
	results, err := filepath.Glob(dir + "slipway-*-eth0")
	if err != nil {
		return
	}
	for _, file := range results {
		pod := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "slipway-"), "-eth0")
		_ = os.Remove(dir + "cni-loopback-" + pod + "-lo")
		_ = os.Remove(file)
	}
}
