package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

func TestClusterCertificates(t *testing.T) {
	c := layout.New("/src")
	c.State = t.TempDir()
	if err := Cluster(c); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(c.PKI("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(c.PKI("apiserver.crt"), c.PKI("apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{layout.NodeIP, layout.APIServiceIP, "kubernetes.default.svc"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("the API server as %s: %v", name, err)
		}
	}
	node, err := tls.LoadX509KeyPair(c.PKI("kubelet-"+layout.NodeName+".crt"), c.PKI("kubelet-"+layout.NodeName+".key"))
	if err != nil {
		t.Fatal(err)
	}
	if s := node.Leaf.Subject; s.CommonName != "system:node:"+layout.NodeName || strings.Join(s.Organization, ",") != "system:nodes" {
		t.Errorf("the node's subject is %v", s)
	}
}

func TestCertificatesAreKeptAndRenewed(t *testing.T) {
	dir := Dir(t.TempDir())
	ca, err := dir.Authority("ca")
	if err != nil {
		t.Fatal(err)
	}
	leaf := Leaf{File: "server", Name: "server", IPs: []string{"192.0.2.1"}}
	serial := func() string {
		if err := dir.Leaf(ca, leaf); err != nil {
			t.Fatal(err)
		}
		cert, _, err := dir.read("server")
		if err != nil {
			t.Fatal(err)
		}
		return cert.SerialNumber.String()
	}
	first := serial()
	if again := serial(); again != first {
		t.Error("a good certificate was made anew")
	}
	leaf.IPs = append(leaf.IPs, "192.0.2.2")
	if again := serial(); again == first {
		t.Error("a certificate without the new address was kept")
	}
	second := serial()
	if ca, err = Dir(t.TempDir()).Authority("ca"); err != nil {
		t.Fatal(err)
	}
	if again := serial(); again == second {
		t.Error("a certificate of another authority was kept")
	}
}

func TestKubeconfigHoldsItsCertificates(t *testing.T) {
	c := layout.New("/src")
	c.State = t.TempDir()
	if err := Cluster(c); err != nil {
		t.Fatal(err)
	}
	text, err := Kubeconfig(Dir(c.PKI("")), c.Server(), "admin")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"server: https://10.244.0.1:6443", "certificate-authority-data: LS0t", "client-key-data: LS0t"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the kubeconfig lacks %q", want)
		}
	}
}
