package config

import (
	"fmt"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
	"github.com/slipway-vm/slipway/hack/cluster/internal/process"
)

// Components returns what the supervisor runs, in the order of their need.
func Components(c layout.Cluster) []process.Component {
	components := ControlPlane(c)
	for _, n := range c.Nodes {
		components = append(components, Node(c, n)...)
	}
	for i := range components {
		components[i].Log = c.Log(components[i].Name)
	}
	return components
}

// ControlPlane returns etcd, the API server, the controller manager and the scheduler.
func ControlPlane(c layout.Cluster) []process.Component {
	ip, api := c.First().IP, c.Server()+"/readyz"
	etcd := fmt.Sprintf("https://%s:%d", ip, layout.EtcdPort)
	peer := fmt.Sprintf("https://%s:%d", ip, layout.EtcdPort+1)
	return []process.Component{
		{Name: "etcd", Command: []string{
			c.Bin("etcd"), "--name=slipway", "--data-dir=" + c.Etcd(),
			"--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=slipway=" + peer,
			"--client-cert-auth", "--cert-file=" + c.PKI("etcd.crt"), "--key-file=" + c.PKI("etcd.key"), "--trusted-ca-file=" + c.PKI("etcd-ca.crt"),
			"--peer-client-cert-auth", "--peer-cert-file=" + c.PKI("etcd.crt"), "--peer-key-file=" + c.PKI("etcd.key"), "--peer-trusted-ca-file=" + c.PKI("etcd-ca.crt"),
			"--unsafe-no-fsync", "--log-level=warn",
		}},
		{Name: "kube-apiserver", After: []string{fmt.Sprintf("tcp:%s:%d", ip, layout.EtcdPort)}, Command: apiServer(c, etcd)},
		{Name: "kube-controller-manager", After: []string{api}, Command: []string{
			c.Bin("kube-controller-manager"), "--bind-address=" + ip, "--leader-elect=false", "--allocate-node-cidrs=false",
			"--kubeconfig=" + c.Conf("controller-manager.kubeconfig"),
			"--authentication-kubeconfig=" + c.Conf("controller-manager.kubeconfig"), "--authorization-kubeconfig=" + c.Conf("controller-manager.kubeconfig"),
			"--tls-cert-file=" + c.PKI("controller-manager.crt"), "--tls-private-key-file=" + c.PKI("controller-manager.key"),
			"--cluster-signing-cert-file=" + c.PKI("ca.crt"), "--cluster-signing-key-file=" + c.PKI("ca.key"),
			"--root-ca-file=" + c.PKI("ca.crt"), "--service-account-private-key-file=" + c.PKI("service-account.key"),
			"--use-service-account-credentials", "--profiling=false", "--flex-volume-plugin-dir=" + c.First().KubeletRoot() + "/volume-plugins",
			// A volume whose binding was missed is looked at again sooner than after 15 s.
			"--pvclaimbinder-sync-period=5s",
		}},
		{Name: "kube-scheduler", After: []string{api}, Command: []string{
			c.Bin("kube-scheduler"), "--bind-address=" + ip, "--leader-elect=false",
			"--kubeconfig=" + c.Conf("scheduler.kubeconfig"),
			"--authentication-kubeconfig=" + c.Conf("scheduler.kubeconfig"), "--authorization-kubeconfig=" + c.Conf("scheduler.kubeconfig"),
			"--tls-cert-file=" + c.PKI("scheduler.crt"), "--tls-private-key-file=" + c.PKI("scheduler.key"), "--profiling=false",
		}},
	}
}

func apiServer(c layout.Cluster, etcd string) []string {
	ip := c.First().IP
	return []string{
		c.Bin("kube-apiserver"), "--advertise-address=" + ip, "--bind-address=" + ip, fmt.Sprintf("--secure-port=%d", layout.APIPort),
		"--allow-privileged", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + c.PKI("ca.crt"), "--tls-cert-file=" + c.PKI("apiserver.crt"), "--tls-private-key-file=" + c.PKI("apiserver.key"),
		"--etcd-servers=" + etcd, "--etcd-cafile=" + c.PKI("etcd-ca.crt"), "--etcd-certfile=" + c.PKI("etcd-client.crt"), "--etcd-keyfile=" + c.PKI("etcd-client.key"),
		"--kubelet-certificate-authority=" + c.PKI("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + c.PKI("apiserver-kubelet.crt"), "--kubelet-client-key=" + c.PKI("apiserver-kubelet.key"),
		"--requestheader-client-ca-file=" + c.PKI("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.PKI("front-proxy.crt"), "--proxy-client-key-file=" + c.PKI("front-proxy.key"), "--enable-aggregator-routing=true",
		"--service-account-issuer=https://kubernetes.default.svc." + layout.Domain,
		"--service-account-key-file=" + c.PKI("service-account.pub"), "--service-account-signing-key-file=" + c.PKI("service-account.key"),
		"--service-cluster-ip-range=" + layout.ServiceCIDR, "--profiling=false", "--shutdown-delay-duration=0s",
		"--audit-policy-file=" + c.Conf("audit.yaml"), "--audit-log-path=" + c.Log("audit"), "--audit-log-mode=batch",
		"--audit-log-maxsize=64", "--audit-log-maxbackup=1",
	}
}

// Name is the name of a node's component; that of the first node is the plain one.
func Name(c layout.Cluster, n layout.Node, component string) string {
	if n.Name == c.First().Name {
		return component
	}
	return component + "-" + n.Name
}

// Node returns containerd, the kubelet and kube-proxy of a node.
func Node(c layout.Cluster, n layout.Node) []process.Component {
	api := c.Server() + "/readyz"
	return []process.Component{
		{Name: Name(c, n, "containerd"), Command: []string{"containerd", "--config=" + n.Conf("containerd.toml"), "--log-level=info"}},
		{Name: Name(c, n, "kubelet"), After: []string{"unix:" + n.ContainerdSocket(), api}, Command: []string{
			c.Bin("cluster"), "within", n.DevicePlugins(), layout.DevicePlugins, c.Bin("kubelet"), "--config=" + n.Conf("kubelet.yaml"), "--kubeconfig=" + n.Conf("kubelet.kubeconfig"),
			"--root-dir=" + n.KubeletRoot(), "--cert-dir=" + n.KubeletRoot() + "/pki", "--node-ip=" + n.IP, "--hostname-override=" + n.Name,
		}},
		{Name: Name(c, n, "kube-proxy"), After: []string{api}, Command: []string{c.Bin("kube-proxy"), "--config=" + n.Conf("proxy.yaml")}},
	}
}
