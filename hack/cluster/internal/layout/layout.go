// Package layout says where everything of the local cluster lives and which
// names, addresses and ports it takes on the machine.
package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Names and addresses of the cluster, all in one place.
const (
	// Bridge is the node's bridge; its address is the node's address.
	Bridge = "slipway0"
	// NodeIP is the address of the first node and of the API server.
	NodeIP = "10.244.0.1"
	// PodCIDR is the first node's share of ClusterCIDR.
	PodCIDR = "10.244.0.0/24"
	// ClusterCIDR holds the pods of all nodes.
	ClusterCIDR = "10.244.0.0/16"
	// ServiceCIDR holds the cluster IPs of services.
	ServiceCIDR = "10.96.0.0/16"
	// APIServiceIP is the cluster IP of the service kubernetes.
	APIServiceIP = "10.96.0.1"
	// DNSServiceIP is the cluster IP of the DNS service.
	DNSServiceIP = "10.96.0.10"
	// Domain is the cluster's DNS domain.
	Domain = "cluster.local"
	// MetricsNamespace is the namespace of the metrics server, while there is one.
	MetricsNamespace = "metrics-server"
	// MetricsAPI is the name of the APIService by which the API server asks it.
	MetricsAPI = "v1beta1.metrics.k8s.io"
	// APIPort is the API server's port on NodeIP.
	APIPort = 6443
	// EtcdPort is etcd's client port on NodeIP.
	EtcdPort = 2379
	// Table is the nftables table that holds the masquerading of pods.
	Table = "slipway-cluster"
	// Cgroup is the parent of every pod's cgroup.
	Cgroup = "slipway"
	// MachineDir is the machine-wide record: which checkout's cluster is active,
	// its processes and what it changed.
	MachineDir = "/var/lib/slipway-cluster"
	// DevicePlugins is where every kubelet looks for device plugins, whatever its
	// root; the node's kubelet sees its own folder there.
	DevicePlugins = "/var/lib/kubelet/device-plugins"
	// NodeName is the name of the first node.
	NodeName = "slipway-1"
)

// maxState is the longest state path that leaves room for the socket names
// below it: a unix socket's path holds at most 107 bytes.
const maxState = 40

// Node is one machine of the cluster, real or a network namespace.
type Node struct {
	// Name is the Node object's name.
	Name string `json:"name"`
	// IP is the node's address.
	IP string `json:"ip"`
	// PodCIDR is the range of the node's pods.
	PodCIDR string `json:"podCIDR"`
	// Bridge is the name of the node's pod bridge.
	Bridge string `json:"bridge"`
	// Dir is the node's own folder below the cluster's state.
	Dir string `json:"dir"`
}

// KubeletRoot is the kubelet's --root-dir.
func (n Node) KubeletRoot() string { return filepath.Join(n.Dir, "kubelet") }

// DevicePlugins is the folder of the node's device plugin sockets.
func (n Node) DevicePlugins() string { return filepath.Join(n.KubeletRoot(), "device-plugins") }

// ContainerdRoot is containerd's persistent folder.
func (n Node) ContainerdRoot() string { return filepath.Join(n.Dir, "containerd", "root") }

// ContainerdState is containerd's folder of running tasks.
func (n Node) ContainerdState() string { return filepath.Join(n.Dir, "containerd", "state") }

// ContainerdSocket is containerd's gRPC socket.
func (n Node) ContainerdSocket() string { return filepath.Join(n.Dir, "run", "containerd.sock") }

// CNIConf is the folder of the CNI configuration.
func (n Node) CNIConf() string { return filepath.Join(n.Dir, "cni", "net.d") }

// CNIState is the folder of address leases.
func (n Node) CNIState() string { return filepath.Join(n.Dir, "cni", "ipam") }

// Pool is where the node's storage pool is mounted.
func (n Node) Pool() string { return filepath.Join(n.Dir, "pool") }

// PoolImage is the file behind the pool's loop device.
func (n Node) PoolImage() string { return filepath.Join(n.Dir, "pool.img") }

// Conf is the folder of the node's configuration files.
func (n Node) Conf(file string) string { return filepath.Join(n.Dir, "conf", file) }

// Cluster is one checkout's cluster.
type Cluster struct {
	// Checkout is the top folder of the checkout that the cluster belongs to.
	Checkout string `json:"checkout"`
	// State is the folder that holds everything the cluster keeps.
	State string `json:"state"`
	// Nodes are its nodes; the first one also runs the control plane.
	Nodes []Node `json:"nodes"`
}

// New returns the cluster of a checkout. The state folder is .cluster in the
// checkout, or a short folder that .cluster links to where that path would be
// too long for sockets.
func New(checkout string) Cluster {
	state := filepath.Join(checkout, ".cluster")
	if len(state) > maxState {
		sum := sha256.Sum256([]byte(checkout))
		state = filepath.Join(MachineDir, hex.EncodeToString(sum[:])[:8])
	}
	return Cluster{
		Checkout: checkout,
		State:    state,
		Nodes:    []Node{{Name: NodeName, IP: NodeIP, PodCIDR: PodCIDR, Bridge: Bridge, Dir: state}},
	}
}

// First is the node that also runs the control plane.
func (c Cluster) First() Node { return c.Nodes[0] }

// Bin is the folder of links to the cluster's programs.
func (c Cluster) Bin(name string) string { return filepath.Join(c.State, "bin", name) }

// Log is a component's log file.
func (c Cluster) Log(name string) string { return filepath.Join(c.State, "log", name+".log") }

// PKI is a certificate or key file.
func (c Cluster) PKI(file string) string { return filepath.Join(c.State, "pki", file) }

// Conf is a configuration file of the control plane.
func (c Cluster) Conf(file string) string { return filepath.Join(c.State, "conf", file) }

// Kubeconfig is the administrator's kubeconfig.
func (c Cluster) Kubeconfig() string { return filepath.Join(c.State, "kubeconfig") }

// Etcd is etcd's data folder.
func (c Cluster) Etcd() string { return filepath.Join(c.State, "etcd") }

// Server is the API server's URL.
func (c Cluster) Server() string { return fmt.Sprintf("https://%s:%d", c.First().IP, APIPort) }

// Prepare makes the state folder, and the link to it where it is elsewhere.
func (c Cluster) Prepare() error {
	for _, dir := range []string{"bin", "log", "pki", "conf", "run"} {
		if err := os.MkdirAll(filepath.Join(c.State, dir), 0o755); err != nil {
			return fmt.Errorf("making the state folder: %w", err)
		}
	}
	if err := os.Chmod(filepath.Join(c.State, "pki"), 0o700); err != nil {
		return fmt.Errorf("closing the key folder: %w", err)
	}
	link := filepath.Join(c.Checkout, ".cluster")
	if link == c.State {
		return nil
	}
	if have, err := os.Readlink(link); err == nil && have == c.State {
		return nil
	}
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("replacing %s by a link: %w; move it away", link, err)
	}
	if err := os.Symlink(c.State, link); err != nil {
		return fmt.Errorf("linking %s: %w", link, err)
	}
	return nil
}
