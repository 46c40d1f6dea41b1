package imageupload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/cmd/virtctl/forward"
	"github.com/slipway-vm/slipway/internal/names"
	shared "github.com/slipway-vm/slipway/internal/upload"
)

// configName is the name of the cluster's one CDIConfig.
const configName = "config"

// proxy is where images are sent.
type proxy struct {
	// base is the address without a path; shown is what the user reads.
	base  *url.URL
	shown string
	http  *http.Client
	close func()
	// again finds another way to it, where this one may end by itself; nil where it does not.
	again func(ctx context.Context) (*proxy, error)
}

// reopen makes p another way to the proxy where the last one may have ended: with its pod, or a connection to the API server.
func (p *proxy) reopen(ctx context.Context) error {
	if p.again == nil {
		return nil
	}
	p.close()
	p.close = func() {}
	anew, err := p.again(ctx)
	if err != nil {
		return err
	}
	*p = *anew
	return nil
}

// findProxy finds cdi-uploadproxy: by the flag, by CDIConfig, or else through the API server.
func (u *upload) findProxy(ctx context.Context) (*proxy, error) {
	config := &cdiv1.CDIConfig{}
	if err := u.client.Get(ctx, client.ObjectKey{Name: configName}, config); err != nil {
		config = &cdiv1.CDIConfig{} // not every cluster has it, nor everybody the right to read it
	}
	namespace := u.installation(ctx)
	trusted := u.authorities(ctx, config, namespace)
	switch {
	case u.proxyURL != "":
		return u.proxyAt(u.proxyURL, "--uploadproxy-url", trusted)
	case config.Status.UploadProxyURL != nil && *config.Status.UploadProxyURL != "":
		return u.proxyAt(*config.Status.UploadProxyURL, "status.uploadProxyURL of CDIConfig", trusted)
	}
	return u.forwarded(ctx, namespace, trusted)
}

func (u *upload) proxyAt(address, from string, trusted *x509.CertPool) (*proxy, error) {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" {
		return nil, fmt.Errorf("%s %q is no address: write https://host", from, address)
	}
	return &proxy{base: base, shown: base.String(), http: u.httpClient(trusted, ""), close: func() {}}, nil
}

// installation is the namespace of Slipway.
func (u *upload) installation(ctx context.Context) string {
	list := &virtv1.KubeVirtList{}
	if err := u.client.List(ctx, list); err == nil && len(list.Items) > 0 {
		return list.Items[0].Namespace
	}
	return names.InstallNamespace
}

// authorities are the system's, and those that the cluster says of cdi-uploadproxy.
func (u *upload) authorities(ctx context.Context, config *cdiv1.CDIConfig, namespace string) *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if said := config.Status.UploadProxyCA; said != nil {
		pool.AppendCertsFromPEM([]byte(*said))
	}
	published := &corev1.ConfigMap{}
	if err := u.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: shared.ProxyBundle}, published); err == nil {
		pool.AppendCertsFromPEM([]byte(published.Data[shared.KeyBundle]))
	}
	return pool
}

// httpClient trusts whom it is told; name is that of the server where the address does not have it.
func (u *upload) httpClient(trusted *x509.CertPool, name string) *http.Client {
	const buffer = 256 << 10
	return &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: trusted, ServerName: name, InsecureSkipVerify: u.insecure, MinVersion: tls.VersionTLS12}, //nolint:gosec // --insecure asks for it
		TLSHandshakeTimeout: 30 * time.Second, DisableKeepAlives: true, DisableCompression: true, WriteBufferSize: buffer,
		ExpectContinueTimeout: 30 * time.Second,
	}}
}

// stay follows no redirect: the image would not go along, and whoever answers there may know nothing of it.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// forwarded reaches cdi-uploadproxy through the API server, by a port of this machine.
func (u *upload) forwarded(ctx context.Context, namespace string, trusted *x509.CertPool) (*proxy, error) {
	const instead = "give --uploadproxy-url, where your administrator has published cdi-uploadproxy"
	pods := &corev1.PodList{}
	if err := u.client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"cdi.kubevirt.io": shared.ProxyName}); err != nil {
		return nil, fmt.Errorf("finding cdi-uploadproxy in namespace %s: %w; %s", namespace, err, instead)
	}
	for n := range pods.Items {
		if pod := &pods.Items[n]; pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			port, stop, err := u.forward(ctx, client.ObjectKeyFromObject(pod))
			if err != nil {
				return nil, fmt.Errorf("forwarding a port to pod %s/%s: %w; %s", namespace, pod.Name, err, instead)
			}
			return &proxy{
				base:  &url.URL{Scheme: "https", Host: net.JoinHostPort("127.0.0.1", fmt.Sprint(port))},
				shown: fmt.Sprintf("pod %s/%s through the API server", namespace, pod.Name),
				http:  u.httpClient(trusted, shared.ProxyHost(namespace)), close: stop,
				again: func(ctx context.Context) (*proxy, error) { return u.forwarded(ctx, namespace, trusted) },
			}, nil
		}
	}
	return nil, fmt.Errorf("uploadproxy URL not found: no pod of cdi-uploadproxy runs in namespace %s; %s", namespace, instead)
}

// forward opens a port of this machine that leads to the pod's, until stop is called.
func (u *upload) forward(ctx context.Context, pod client.ObjectKey) (port uint16, stop func(), err error) {
	config, err := u.cluster.Config()
	if err != nil {
		return 0, nil, err //nolint:wrapcheck // it says what it was doing
	}
	return forward.To(ctx, config, forward.Port{Pod: pod, Remote: proxyPort})
}

// proxyPort is where cdi-uploadproxy's pods take images.
const proxyPort = 8443
