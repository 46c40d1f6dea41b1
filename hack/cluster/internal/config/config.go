// Package config renders the command lines and configuration files of the
// cluster's components. It is pure: facts in, text out.
package config

import (
	"fmt"
	"strings"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

// Facts are what was found on the machine.
type Facts struct {
	// Systemd tells that systemd is the machine's init and owns the cgroups.
	Systemd bool
	// AppArmor tells that the kernel enforces AppArmor profiles and the parser is there.
	AppArmor bool
	// SysResource tells that root may lower a process's oom_score_adj.
	SysResource bool
	// CNIBin is the folder of the CNI plugins.
	CNIBin string
	// MTU is that of the machine's way out, and so that of the bridge.
	MTU int
	// Resolvers are the machine's name servers that pods can reach and that answer.
	Resolvers []string
	// PauseImage is the sandbox image.
	PauseImage string
}

// CgroupDriver is the name that the kubelet has for the cgroup manager.
func (f Facts) CgroupDriver() string {
	if f.Systemd {
		return "systemd"
	}
	return "cgroupfs"
}

// oomScoreAdj returns the value asked for, or 0 where root may not set it.
func (f Facts) oomScoreAdj(want int) int {
	if f.SysResource {
		return want
	}
	return 0
}

// Containerd renders containerd's configuration.
func Containerd(n layout.Node, f Facts) string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q
oom_score = %d
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp", "io.containerd.nri.v1.nri"]

[grpc]
  address = %q

[plugins."io.containerd.internal.v1.opt"]
  path = %q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = %t
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = %t
  device_ownership_from_security_context = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = %t
    Root = %q
`, n.ContainerdRoot(), n.ContainerdState(), f.oomScoreAdj(-999), n.ContainerdSocket(), n.ContainerdRoot()+"/opt",
		f.PauseImage, !f.AppArmor, !f.SysResource, f.CNIBin, n.CNIConf(), f.Systemd, n.Dir+"/run/runc")
}

// CNI renders the node's pod network.
func CNI(n layout.Node, f Facts) string {
	return fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": "slipway",
  "plugins": [
    {
      "type": "bridge", "bridge": %q, "isGateway": true, "isDefaultGateway": true, "hairpinMode": true, "mtu": %d,
      "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]]}
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, n.Bridge, f.MTU, n.CNIState(), n.PodCIDR)
}

// Kubelet renders the kubelet's configuration. Images are never collected: there
// is no registry that they could be pulled from again.
func Kubelet(c layout.Cluster, n layout.Node, f Facts) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
healthzBindAddress: %[1]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]s}
authorization: {mode: Webhook}
cgroupDriver: %[3]s
cgroupRoot: /%[4]s
clusterDNS: [%[5]s]
clusterDomain: %[6]s
containerRuntimeEndpoint: unix://%[7]s
evictionHard: {memory.available: 100Mi, nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
imageMaximumGCAge: 0s
makeIPTablesUtilChains: false
maxPods: 240
oomScoreAdj: %[8]d
podLogsDir: %[9]s
resolvConf: %[10]s
rotateCertificates: false
serializeImagePulls: false
tlsCertFile: %[11]s
tlsPrivateKeyFile: %[12]s
volumePluginDir: %[13]s
`, n.IP, c.PKI("ca.crt"), f.CgroupDriver(), layout.Cgroup, layout.DNSServiceIP, layout.Domain, n.ContainerdSocket(),
		f.oomScoreAdj(-999), n.Dir+"/log/pods", n.Conf("resolv.conf"),
		c.PKI("kubelet-"+n.Name+".crt"), c.PKI("kubelet-"+n.Name+".key"), n.KubeletRoot()+"/volume-plugins")
}

// Audit renders the API server's audit policy: who among the service accounts did what,
// without bodies. Tests count writes by it and compare roles with the calls made.
func Audit() string {
	return `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts"]
  - level: None
`
}

// Proxy renders kube-proxy's configuration.
func Proxy(n layout.Node, f Facts) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
bindAddress: %[1]s
healthzBindAddress: %[1]s:10256
metricsBindAddress: %[1]s:10249
clientConnection: {kubeconfig: %[2]s}
clusterCIDR: %[3]s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, udpTimeout: 0s, udpStreamTimeout: 0s}
hostnameOverride: %[4]s
nftables: {minSyncPeriod: 100ms}
oomScoreAdj: %[5]d
`, n.IP, n.Conf("proxy.kubeconfig"), layout.ClusterCIDR, n.Name, f.oomScoreAdj(-999))
}

// ResolvConf renders the resolv.conf that pods with the node's DNS policy get.
func ResolvConf(f Facts) string {
	if len(f.Resolvers) == 0 {
		return "# no name server outside the cluster\n"
	}
	return "nameserver " + strings.Join(f.Resolvers, "\nnameserver ") + "\n"
}

// Corefile renders CoreDNS's configuration: names outside the cluster are
// forwarded, or denied at once where the machine has no name server. They have a
// block of their own because CoreDNS asks its template before the cluster.
func Corefile(f Facts) string {
	outside := "template ANY ANY {\n        rcode NXDOMAIN\n    }"
	if len(f.Resolvers) > 0 {
		outside = "forward . " + strings.Join(f.Resolvers, " ")
	}
	return fmt.Sprintf(`%[1]s %[2]s %[3]s {
    errors
    ready
    kubernetes {
        pods insecure
        ttl 5
    }
    cache 5
}
. {
    errors
    health {
        lameduck 1s
    }
    ready
    cache 30
    %[4]s
}
`, layout.Domain, layout.ClusterCIDR, layout.ServiceCIDR, outside)
}
