//go:build integration

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/importer/exportproxy"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// public is the host of an Ingress.
const public = "exports.example.com"

// runProxy runs virt-exportproxy, which finds every export's server where the test has it.
func (p *pier) runProxy(t *testing.T) {
	t.Helper()
	account := p.account(t, "virt-exportproxy")
	background(t, "virt-exportproxy", func(ctx context.Context) error {
		return exportproxy.Run(ctx, account, exportproxy.Options{
			Namespace: installed, Address: p.front, HealthAddress: "0", MetricsAddress: "0",
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if !strings.HasPrefix(address, "virt-export-") || !strings.HasSuffix(address, ".shop.svc:443") {
					return nil, fmt.Errorf("there is no %s", address)
				}
				return (&net.Dialer{}).DialContext(ctx, network, p.place)
			},
		})
	})
}

// ingress is a client that comes by an Ingress, which trusts the proxy as it tells everybody to.
func (p *pier) ingress(t *testing.T) *http.Client {
	t.Helper()
	bundle := &corev1.ConfigMap{}
	gomega.NewWithT(t).Eventually(func() error {
		return p.Get(t.Context(), client.ObjectKey{Namespace: installed, Name: vmexport.ProxyBundle}, bundle)
	}, bound, "100ms").Should(gomega.Succeed(), "the proxy tells whom to trust")
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(bundle.Data[vmexport.KeyBundle]))
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: vmexport.ProxyName + "." + installed + ".svc"}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, p.front)
		},
	}}
}

// publish makes an Ingress for the proxy, with a certificate, which it returns. Of the Ingress's Secret virt-controller has that alone.
func (p *pier) publish(t *testing.T) (certificate string, made *networkingv1.Ingress) {
	t.Helper()
	issued, err := certs.Alone([]string{public}, time.Hour, time.Now())
	must(t, err)
	must(t, os.WriteFile(p.certificate, issued.Cert, 0o600)) // as the kubelet does
	made = &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: "exports"}}
	made.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{public}, SecretName: vmexport.PublishedSecret}}
	made.Spec.Rules = []networkingv1.IngressRule{{Host: public, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
		Paths: []networkingv1.HTTPIngressPath{{
			Path: "/", PathType: new(networkingv1.PathTypePrefix),
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: vmexport.ProxyName, Port: networkingv1.ServiceBackendPort{Number: 443}}},
		}},
	}}}}
	must(t, p.Create(t.Context(), made))
	return strings.TrimSpace(string(issued.Cert)), made
}

func fromOutside(t *testing.T, p *pier) {
	if out, err := p.virtctl(t, p.user, "vmexport create outside --vm=web --labels=team=a --annotations=example.com/net=b"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	defer func() { _, _ = p.virtctl(t, p.user, "vmexport delete outside") }()
	if links := p.phase(t, "outside", exportv1.Ready).Status.Links; links.External != nil {
		t.Errorf("it is published by nothing: %+v", links.External)
	}
	pod := &corev1.Pod{}
	must(t, p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: vmexport.ServerName("outside")}, pod))
	if pod.Labels["team"] != "a" || pod.Annotations["example.com/net"] != "b" {
		t.Errorf("its pod has %v, %v", pod.Labels, pod.Annotations)
	}
	certificate, made := p.publish(t)
	external := p.external(t, func(link *exportv1.VirtualMachineExportLink) bool { return link != nil && link.Cert == certificate })
	token := &corev1.Secret{}
	must(t, p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: *p.phase(t, "outside", exportv1.Ready).Status.TokenSecretRef}, token))
	web := p.ingress(t)
	ask := func(url, token string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		must(t, err)
		request.Header.Set(vmexport.Token, token)
		response, err := web.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		must(t, err)
		return response.StatusCode, string(body)
	}
	raw, shown := external.Volumes[0].Formats[0].Url, string(token.Data["token"])
	gomega.NewWithT(t).Eventually(func() int { code, _ := ask(raw, shown); return code }, bound, "200ms").Should(gomega.Equal(http.StatusOK), "the server is reached")
	if _, body := ask(raw, shown); body != disk {
		t.Errorf("another disk, of %d bytes", len(body))
	}
	if code, body := ask(raw, "another"); code != http.StatusUnauthorized {
		t.Errorf("another token: %d %s", code, body)
	}
	if code, body := ask(strings.Replace(raw, "/outside/", "/nobodys/", 1), shown); code != http.StatusNotFound {
		t.Errorf("another export: %d %s", code, body)
	}
	if code, body := ask(external.Manifests[0].Url, shown); code != http.StatusOK || !strings.Contains(body, strings.TrimSuffix(raw, "disk.img")) ||
		!strings.Contains(body, strings.Split(certificate, "\n")[1]) || strings.Contains(body, vmexport.InternalBase(shop, "outside")) {
		t.Errorf("the definition: %d %s", code, body)
	}
	must(t, p.Delete(t.Context(), made))
	p.external(t, func(link *exportv1.VirtualMachineExportLink) bool { return link == nil })
}

// external waits until the export outside has an external link that is wanted.
func (p *pier) external(t *testing.T, wanted func(*exportv1.VirtualMachineExportLink) bool) *exportv1.VirtualMachineExportLink {
	t.Helper()
	var export *exportv1.VirtualMachineExport
	gomega.NewWithT(t).Eventually(func(g gomega.Gomega) {
		export = &exportv1.VirtualMachineExport{} // what is read adds to what was
		g.Expect(p.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "outside"}, export)).To(gomega.Succeed())
		g.Expect(export.Status).NotTo(gomega.BeNil())
		g.Expect(export.Status.Links).NotTo(gomega.BeNil())
		g.Expect(wanted(export.Status.Links.External)).To(gomega.BeTrue(), "%+v", export.Status.Links)
	}, bound, "100ms").Should(gomega.Succeed(), "the external link")
	return export.Status.Links.External
}
