package pki

import (
	"encoding/base64"
	"fmt"
	"os"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

// Cluster makes every certificate and key of a cluster that is missing.
func Cluster(c layout.Cluster) error {
	dir := Dir(c.PKI(""))
	ca, err := dir.Authority("ca")
	if err != nil {
		return err
	}
	front, err := dir.Authority("front-proxy-ca")
	if err != nil {
		return err
	}
	etcd, err := dir.Authority("etcd-ca")
	if err != nil {
		return err
	}
	ip := c.First().IP
	services := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + layout.Domain, "localhost"}
	for _, l := range []struct {
		ca   *Authority
		leaf Leaf
	}{
		{ca, Leaf{File: "apiserver", Name: "kube-apiserver", IPs: []string{ip, layout.APIServiceIP, "127.0.0.1"}, Hosts: services}},
		{ca, Leaf{File: "apiserver-kubelet", Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}}},
		{front, Leaf{File: "front-proxy", Name: "front-proxy-client"}},
		{etcd, Leaf{File: "etcd", Name: "etcd", IPs: []string{ip, "127.0.0.1"}}},
		{etcd, Leaf{File: "etcd-client", Name: "kube-apiserver"}},
		{ca, Leaf{File: "admin", Name: "kubernetes-admin", Groups: []string{"system:masters"}}},
		{ca, Leaf{File: "controller-manager", Name: "system:kube-controller-manager", IPs: []string{ip}}},
		{ca, Leaf{File: "scheduler", Name: "system:kube-scheduler", IPs: []string{ip}}},
		{ca, Leaf{File: "proxy", Name: "system:kube-proxy"}},
	} {
		if err := dir.Leaf(l.ca, l.leaf); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		leaf := Leaf{File: "kubelet-" + n.Name, Name: "system:node:" + n.Name, Groups: []string{"system:nodes"}, IPs: []string{n.IP}, Hosts: []string{n.Name}}
		if err := dir.Leaf(ca, leaf); err != nil {
			return err
		}
	}
	return dir.Key("service-account")
}

// Kubeconfig renders a kubeconfig for a certificate of the folder; it holds
// the certificates themselves, so that it can be copied.
func Kubeconfig(d Dir, server, leaf string) ([]byte, error) {
	var data [3]string
	for i, file := range []string{"ca.crt", leaf + ".crt", leaf + ".key"} {
		b, err := os.ReadFile(d.Path(file))
		if err != nil {
			return nil, fmt.Errorf("writing a kubeconfig for %s: %w", leaf, err)
		}
		data[i] = base64.StdEncoding.EncodeToString(b)
	}
	return []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: slipway
clusters:
- name: slipway
  cluster:
    server: %s
    certificate-authority-data: %s
contexts:
- name: slipway
  context: {cluster: slipway, user: %s}
users:
- name: %s
  user:
    client-certificate-data: %s
    client-key-data: %s
`, server, data[0], leaf, leaf, data[1], data[2])), nil
}
