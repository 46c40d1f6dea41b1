package vmexport

import (
	"fmt"
	"slices"
	"strings"
)

// Names of virt-exportproxy in the namespace of the installation.
const (
	// ProxyName is its Deployment and its Service: an Ingress or Route that leads to the latter publishes all exports.
	ProxyName = "virt-exportproxy"
	// ProxySecret has the certificate that it serves with; ProxyBundle, a ConfigMap, the authorities
	// that vouch for it, under KeyBundle.
	ProxySecret = "kubevirt-exportproxy-certs"
	ProxyBundle = "virt-exportproxy-signer-bundle"
	KeyBundle   = "ca-bundle.crt"
	// PublishedSecret is for administrators to make: its tls.crt has whom clients outside are to trust. virt-controller has
	// that part of it, and no key, as a file.
	PublishedSecret = "virt-exportproxy-tls"
)

// By these headers the proxy tells an export's server, which is asked for PathExternalManifest, where it is reached from
// outside, and whom to trust there: a base such as ExternalBase, and certificates in PEM as base64; the latter is
// left out where those that every system trusts suffice.
const (
	HeaderBase      = "Slipway-Export-Base"
	HeaderAuthority = "Slipway-Export-Authority"
)

// MaxHead is how long the head of a request to an export's server may be, in bytes: certificates may be in it.
const MaxHead = 64 << 10

// What is in front of an export's own paths, as the proxy has them.
const (
	apiPrefix   = "/api/export.kubevirt.io/"
	apiVersion  = "v1" // which links have
	pathExports = "virtualmachineexports"
)

// apiVersions are those that the proxy takes.
var apiVersions = []string{"v1beta1", "v1alpha1", apiVersion}

// ExternalBase is above all that an export's server has, for who reaches virt-exportproxy at host.
func ExternalBase(host, namespace, export string) string {
	return fmt.Sprintf("https://%s%s%s/namespaces/%s/%s/%s", host, apiPrefix, apiVersion, namespace, pathExports, export)
}

// CutExternal reads the path of a request to the proxy, escaped as it came: whose export it is for, what is in front of
// the path there, and that path, which begins with a slash.
func CutExternal(path string) (namespace, export, prefix, rest string, found bool) {
	after, found := strings.CutPrefix(path, apiPrefix)
	parts := strings.SplitN(after, "/", 6) // version, namespaces, which, virtualmachineexports, which, the rest
	if !found || len(parts) < 6 || !slices.Contains(apiVersions, parts[0]) || parts[1] != "namespaces" || parts[3] != pathExports ||
		parts[2] == "" || parts[4] == "" {
		return "", "", "", "", false
	}
	rest = "/" + parts[5]
	return parts[2], parts[4], strings.TrimSuffix(path, rest), rest, true
}
