package cdiconfig

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/proxy"
)

// maxAuthorities is how many bytes of certificates of a proxy's authorities each import gets at the most. They are
// in a Secret, of which an API server takes a MiB.
const maxAuthorities = 512 << 10

// ImportProxy says how servers of images are reached, as spec.config.importProxy of the CDI object has it.
type ImportProxy struct {
	// HTTP and HTTPS are the proxies of http and of https addresses, perhaps with a password. Empty: none.
	HTTP, HTTPS string
	// NoProxy lists what is reached without them, separated by commas.
	NoProxy string
	// Authorities are certificates, as PEM, of who is trusted beside those that the system trusts.
	Authorities []byte
	// Fault says why there are no Authorities although there should be.
	Fault error
}

// Proxy says how servers of images are reached. The ConfigMap with authorities is read by live, in namespace,
// Slipway's. What is wrong with it the result says by itself. It is the CDI object that is read: the CDIConfig,
// which everyone may read, has no passwords.
func Proxy(ctx context.Context, cached, live client.Reader, namespace string) (ImportProxy, error) {
	cdi, err := Installed(ctx, cached)
	if err != nil || cdi == nil || cdi.Spec.Config == nil || cdi.Spec.Config.ImportProxy == nil {
		return ImportProxy{}, err
	}
	set := cdi.Spec.Config.ImportProxy
	read := ImportProxy{
		HTTP: strings.TrimSpace(ptr.Deref(set.HTTPProxy, "")), HTTPS: strings.TrimSpace(ptr.Deref(set.HTTPSProxy, "")),
		NoProxy: strings.TrimSpace(ptr.Deref(set.NoProxy, "")),
	}
	if name := ptr.Deref(set.TrustedCAProxy, ""); name != "" {
		err = read.trust(ctx, live, types.NamespacedName{Namespace: namespace, Name: name})
	}
	return read, err
}

// trust reads the certificates in a ConfigMap, under whichever keys, and nothing else that may be in it.
func (p *ImportProxy) trust(ctx context.Context, live client.Reader, from types.NamespacedName) error {
	var found corev1.ConfigMap
	err := live.Get(ctx, from, &found)
	if apierrors.IsNotFound(err) {
		p.Fault = fmt.Errorf("ConfigMap %s, which importProxy.trustedCAProxy names, does not exist; create it with the certificates of the proxy's authorities, or remove its name", from)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", from, err)
	}
	var all bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(found.Data)) {
		for rest := []byte(found.Data[key]); ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if block.Type == "CERTIFICATE" {
				_, _ = all.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})) // a buffer takes all
			}
		}
	}
	switch p.Authorities = all.Bytes(); {
	case len(p.Authorities) == 0:
		p.Fault = fmt.Errorf("ConfigMap %s, which importProxy.trustedCAProxy names, holds no PEM certificate; put those of the proxy's authorities there, under any key", from)
	case len(p.Authorities) > maxAuthorities:
		p.Authorities = nil
		p.Fault = fmt.Errorf("ConfigMap %s, which importProxy.trustedCAProxy names, holds %d bytes of certificates, and each import gets a copy; %d is the most: leave out those that every system trusts", from, all.Len(), maxAuthorities)
	}
	return nil
}

// Set says whether there is a proxy for any address.
func (p ImportProxy) Set() bool { return p.HTTP != "" || p.HTTPS != "" }

// Without lists what is reached without the proxies, as the environment of an importer of images from hosts has it:
// what NoProxy names, and always the names of the cluster's own Services.
func (p ImportProxy) Without(hosts ...string) string {
	var list []string
	if p.NoProxy != "" {
		list = append(list, p.NoProxy)
	}
	list = append(list, ".svc", ".cluster.local")
	for _, host := range hosts {
		if ofCluster(host) && !slices.Contains(list, host) {
			list = append(list, host)
		}
	}
	return strings.Join(list, ",")
}

// ofCluster says whether host is a Service beside the names that Without has anyway: those of the importer's own
// namespace have no dot, and a name that is meant to the letter has one at its end.
func ofCluster(host string) bool {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "" || !strings.Contains(name, ".") {
		return name != "" && !strings.Contains(name, ":") // which is an address
	}
	return strings.HasSuffix(host, ".") && (strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, ".cluster.local"))
}

// For returns the proxy by which address is reached; nil for none.
func (p ImportProxy) For(address *url.URL) (*url.URL, error) {
	config := httpproxy.Config{HTTPProxy: p.HTTP, HTTPSProxy: p.HTTPS, NoProxy: p.Without(address.Hostname())}
	by, err := config.ProxyFunc()(address)
	if err != nil {
		return nil, fmt.Errorf("choosing the proxy of imports: %w", err)
	}
	return by, nil
}

// Addresses are the proxies' own, as host:port.
func (p ImportProxy) Addresses() []string {
	return []string{proxy.HostPort(p.HTTP), proxy.HostPort(p.HTTPS)}
}

// Secret says whether address, a proxy's, has what not everyone may read.
func Secret(address string) bool {
	address = strings.TrimSpace(address)
	u, err := proxy.Parse(address)
	return address != "" && (err != nil || u.User != nil)
}

// isRange says whether text is a range of addresses, such as 10.0.0.0/8.
func isRange(text string) bool {
	_, err := netip.ParsePrefix(text)
	return err == nil
}
