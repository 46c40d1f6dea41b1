package exportproxy

import (
	"encoding/base64"
	"net/http"
	"net/http/httputil"
	"strings"

	exportv1 "kubevirt.io/api/export/v1beta1"

	"github.com/slipway-vm/slipway/internal/vmexport"
)

// asked are the headers of a request that its export's server is told: those that it goes by. What else there is was for others on
// the way, such as credentials for an Ingress, or who it says the client is.
var asked = []string{
	vmexport.Token, "Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "Accept", "User-Agent",
}

// answered are the headers of an answer that the client is told.
var answered = []string{
	"Accept-Ranges", "Allow", "Content-Disposition", "Content-Encoding", "Content-Length", "Content-Range", "Content-Type", "Date", "Etag", "Last-Modified",
}

// only are those of all that are called by names.
func only(all http.Header, names []string) http.Header {
	kept := http.Header{}
	for _, name := range names {
		if values := all.Values(name); len(values) > 0 {
			kept[http.CanonicalHeaderKey(name)] = values
		}
	}
	return kept
}

// rewrite makes the request to the export's server, without a body.
func rewrite(out *httputil.ProxyRequest, found way) {
	to := *found.to
	to.RawQuery = out.Out.URL.RawQuery
	out.Out.URL, out.Out.Host = &to, to.Host
	out.Out.Body, out.Out.ContentLength, out.Out.TransferEncoding = http.NoBody, 0, nil
	out.Out.Header = only(out.Out.Header, asked)
	if external := found.links.External; external != nil && to.Path == vmexport.PathExternalManifest {
		out.Out.Header.Set(vmexport.HeaderBase, baseOf(external))
		if external.Cert != "" {
			out.Out.Header.Set(vmexport.HeaderAuthority, base64.StdEncoding.EncodeToString([]byte(external.Cert)))
		}
	}
}

// baseOf is what the addresses of an export have in front of its server's paths, as its links tell; "" when they do not.
func baseOf(link *exportv1.VirtualMachineExportLink) string {
	for _, manifest := range link.Manifests {
		if base, found := strings.CutSuffix(manifest.Url, vmexport.PathExternalManifest); found {
			return base
		}
	}
	return ""
}

// tame takes from an answer what one export could do to another: all have the same origin, and who has a namespace
// can answer in the place of its servers. What leads elsewhere is led back through the proxy, or nowhere. Nobody on the way keeps
// the answer, who would give it to others without asking for the token; and no page is told the address of another, which may have it.
func tame(answer http.Header, prefix string) http.Header {
	tamed := only(answer, answered)
	tamed.Set("Cache-Control", "private, no-store")
	tamed.Set("Referrer-Policy", "no-referrer")
	tamed.Set("Content-Security-Policy", "default-src 'none'; sandbox") // a browser runs no scripts of it
	tamed.Set("X-Content-Type-Options", "nosniff")
	if to := answer.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		tamed.Set("Location", prefix+to)
	}
	return tamed
}
