// Package exportproxy is virt-exportproxy: by it VirtualMachineExports are reached from outside of the cluster. It hands
// what is asked for on to the export's own server, which asks for the token; itself it authorises nothing, keeps
// nothing, and reads no body.
package exportproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer/patient"
	"github.com/slipway-vm/slipway/importer/proxyserver"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// errEndless says that a client would take the end of a connection for that of a volume.
var errEndless = errors.New("how long this is is not known before, and by HTTP/1.0 nobody sees whether it came whole: use HTTP/1.1 (nginx: proxy_http_version 1.1)")

// Exports tells of exports.
type Exports interface {
	Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error
}

// Proxy answers requests.
type Proxy struct {
	Exports Exports
	// Dial connects to the servers of exports by the names of their Services; nil does it by the cluster's DNS.
	Dial proxyserver.Dialer
}

// way is where a request leads.
type way struct {
	export client.ObjectKey
	// prefix is what is in front of the server's own path.
	prefix string
	// to is the address at the server, but for the query.
	to *url.URL
	// links are by what the export is known.
	links exportv1.VirtualMachineExportLinks
}

// ServeHTTP hands a request on, or says why not: 400 when it is for no export, 404 for one that does not exist, 405 when it
// does not only read, 502 when the server cannot be reached, 503 when the export is not ready, 505 when the client could not
// tell an answer that is whole from one that broke off.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == vmexport.PathHealth {
		_, _ = io.WriteString(w, "OK") // who asks may be gone
		return
	}
	found, code, why := p.find(r)
	if code != http.StatusOK {
		if code == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", "GET, HEAD")
		}
		refuse(w, code, why)
		return
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM([]byte(found.links.Internal.Cert)) {
		refuse(w, http.StatusServiceUnavailable, "the export does not say by what its server is known yet; try again soon")
		return
	}
	log.FromContext(r.Context()).V(2).Info("Handing a request on", "export", found.export, "method", r.Method, "path", found.to.Path, "range", r.Header.Get("Range"))
	p.handOn(patient.Writer(w), r, found, trusted)
}

// find returns where r leads, or a status that is not OK and why.
func (p *Proxy) find(r *http.Request) (found way, code int, why string) {
	namespace, name, prefix, rest, ok := vmexport.CutExternal(r.URL.EscapedPath())
	if !ok {
		return way{}, http.StatusBadRequest, "there is nothing here; the addresses of an export are in its status.links.external"
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return way{}, http.StatusMethodNotAllowed, "exports are only read: use GET or HEAD"
	}
	export := &exportv1.VirtualMachineExport{}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	err := p.Exports.Get(r.Context(), key, export)
	switch {
	case apierrors.IsNotFound(err):
		return way{}, http.StatusNotFound, fmt.Sprintf("there is no VirtualMachineExport %s", key)
	case err != nil:
		log.FromContext(r.Context()).Error(err, "Reading an export failed", "export", key)
		return way{}, http.StatusInternalServerError, "the export cannot be read; see the log of virt-exportproxy"
	}
	status := ptr.Deref(export.Status, exportv1.VirtualMachineExportStatus{})
	links := ptr.Deref(status.Links, exportv1.VirtualMachineExportLinks{})
	if status.Phase != exportv1.Ready || links.Internal == nil {
		return way{}, http.StatusServiceUnavailable, fmt.Sprintf("VirtualMachineExport %s is not ready; its condition Ready says why", key)
	}
	to, err := url.Parse(vmexport.InternalBase(namespace, name) + rest)
	if err != nil {
		return way{}, http.StatusBadRequest, "the address cannot be read"
	}
	if !vmexport.IsExported(to.Path) {
		return way{}, http.StatusNotFound, "no export has that; the addresses of this one are in its status.links.external"
	}
	return way{export: key, prefix: prefix, to: to, links: links}, http.StatusOK, ""
}

// handOn sends r to the export's server, and its answer back. An answer that breaks off cuts the connection, so that
// nobody takes its end for the volume's.
func (p *Proxy) handOn(w http.ResponseWriter, r *http.Request, found way, trusted *x509.CertPool) {
	(&httputil.ReverseProxy{
		Rewrite:    func(out *httputil.ProxyRequest) { rewrite(out, found) },
		Transport:  proxyserver.Transport(p.Dial, &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}),
		BufferPool: &buffers,
		ModifyResponse: func(response *http.Response) error {
			if response.ContentLength < 0 && !r.ProtoAtLeast(1, 1) {
				return errEndless
			}
			response.Header = tame(response.Header, found.prefix)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, errEndless) {
				refuse(w, http.StatusHTTPVersionNotSupported, errEndless.Error())
				return
			}
			if r.Context().Err() == nil { // else it is the client that went
				log.FromContext(r.Context()).Error(err, "Handing a request on failed", "export", found.export)
			}
			refuse(w, http.StatusBadGateway, "the export's server does not answer; look at pod "+vmexport.ServerName(found.export.Name)+" and try again")
		},
	}).ServeHTTP(w, r)
}

// refuse says why nothing is given, and hangs up: what else the client sends is not read.
func refuse(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Connection", "close")
	http.Error(w, why, code)
}

// pool lends buffers, large ones: volumes go through them.
type pool struct{ free sync.Pool }

// bufferSize is the size of one, in bytes.
const bufferSize = 256 << 10

var buffers pool

// Get lends a buffer.
func (p *pool) Get() []byte {
	if lent, ok := p.free.Get().(*[bufferSize]byte); ok {
		return lent[:]
	}
	return make([]byte, bufferSize)
}

// Put takes one back.
func (p *pool) Put(buffer []byte) { p.free.Put((*[bufferSize]byte)(buffer)) }
