// Package upload is what the parts of an upload agree on: virt-api, which gives out tokens;
// cdi-uploadproxy, which takes an image for a token; the upload server, one for each claim, which
// writes the image; and virt-controller, which starts that. Names, paths and claims are the field's.
package upload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Names in the namespace of the installation.
const (
	// ProxyName is the Deployment and the Service of the proxy.
	ProxyName = "cdi-uploadproxy"
	// ProxySecret has the certificate that the proxy serves with; ProxyBundle, a ConfigMap for
	// everybody, the authorities that vouch for it, under KeyBundle.
	ProxySecret = "cdi-uploadproxy-server-cert"
	ProxyBundle = "cdi-uploadproxy-signer-bundle"
	KeyBundle   = "ca-bundle.crt"
	// SigningSecret has the key that signs tokens; the ConfigMap of the same name the public keys by
	// which they are known, under KeyPublic.
	SigningSecret = "cdi-api-signing-key"
	// SignerSecret has the authority of upload servers and of the proxy as their client, ClientSecret
	// the proxy's part of it.
	SignerSecret = "cdi-uploadserver-signer"
	ClientSecret = "cdi-uploadserver-client-cert"
)

// Annotations on claims.
const (
	// AnnotationTarget marks a claim that an image can be uploaded to.
	AnnotationTarget = "cdi.kubevirt.io/storage.upload.target"
	// AnnotationReady is "true" while the claim's upload server takes an image.
	AnnotationReady = "cdi.kubevirt.io/storage.pod.ready"
)

// ClientName is the common name of the one client that upload servers listen to.
const ClientName = "client.upload-server.cdi.kubevirt.io"

// Ports of an upload server: for the proxy, and for virt-controller, which asks for the progress.
const (
	ServerPort         = 8443
	ServerProgressPort = 8444
)

// Paths, after the version.
const (
	PathUpload    = "upload"
	PathAsync     = "upload-async"
	PathForm      = "upload-form"
	PathFormAsync = "upload-form-async"
	PathHealth    = "/healthz"
	// FormField is the field of a form with the image.
	FormField = "file"
)

// Paths returns the paths that an image can be sent to, of every version.
func Paths() []string {
	var all []string
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		for _, path := range []string{PathUpload, PathAsync, PathForm, PathFormAsync} {
			all = append(all, "/"+version+"/"+path)
		}
	}
	return all
}

// IsPath says whether an image can be sent to path; form, that it comes in a form; async, that the
// client may ask by HEAD whether it can.
func IsPath(path string) (found, form, async bool) {
	if !slices.Contains(Paths(), path) {
		return false, false, false
	}
	name := path[strings.LastIndexByte(path, '/')+1:]
	return true, name == PathForm || name == PathFormAsync, name == PathAsync || name == PathFormAsync
}

// Headers of an upload that may be resumed, which is Slipway's own: what the sender calls it, and how many of its bytes
// have come.
const (
	HeaderUpload = "Slipway-Upload"
	HeaderOffset = "Slipway-Upload-Offset"
)

// maxName is how long the name of a Service may be.
const maxName = 63

// hashed is the end of a name that was told apart by a hash.
var hashed = regexp.MustCompile(`-[0-9a-f]{8}$`)

// ServerName is the name of a claim's upload server: of its pod and its Service. A claim's name that
// is no name of a Service, makes too long a one, or looks as if it was, is cut, and told apart by a hash.
func ServerName(claim string) string {
	name := "cdi-upload-" + claim
	if len(name) <= maxName && !strings.Contains(name, ".") && !hashed.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(claim))
	name = strings.ReplaceAll(name, ".", "-")
	return strings.TrimRight(name[:min(len(name), maxName-9)], "-") + "-" + hex.EncodeToString(sum[:4])
}

// ServerHost is by what name a claim's upload server is reached, and what its certificate says.
func ServerHost(namespace, claim string) string {
	return fmt.Sprintf("%s.%s.svc", ServerName(claim), namespace)
}

// ProxyHost is by what name the proxy of an installation is reached in the cluster.
func ProxyHost(namespace string) string { return ProxyName + "." + namespace + ".svc" }
