// Package uploadproxy is cdi-uploadproxy: it takes disk images from outside the cluster and hands
// them on, as they come, to the upload server of the claim that the request's token names. Of a
// request without a good token it reads no body.
package uploadproxy

import (
	"context"
	"crypto/rsa"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/upload"
)

// Claims tells of claims that wait for an upload.
type Claims interface {
	// AwaitReady returns once the upload server of the claim takes an image, and whose server it is: the
	// claim's own, or that of another which is filled for it. Its error is for the user.
	AwaitReady(ctx context.Context, claim upload.Target) (upload.Target, error)
}

// Trust is whom the proxy believes, and how it is believed.
type Trust interface {
	// Keys are those by which tokens are known.
	Keys(ctx context.Context) ([]*rsa.PublicKey, error)
	// Transport reaches upload servers by the names of their Services.
	Transport(ctx context.Context) (http.RoundTripper, error)
}

// Proxy answers requests.
type Proxy struct {
	Claims Claims
	Trust  Trust
	Now    func() time.Time
}

// patience is for how long the body of a request may keep it waiting that brings no image.
const patience = 30 * time.Second

// ServeHTTP hands an image on, or says why not: 400 without a token or with one for another purpose,
// 401 with one that is not good, 503 when the claim takes no image.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(patience)) // best effort, as below: a test's recorder has none
	if r.URL.Path == upload.PathHealth {
		_, _ = w.Write([]byte("OK")) // who asks may be gone
		return
	}
	if crossOrigin(w, r) {
		return
	}
	if found, _, _ := upload.IsPath(r.URL.Path); !found {
		refuse(w, http.StatusNotFound, "there is nothing here; images are sent to /v1beta1/upload")
		return
	}
	claim, code, why := p.authorize(r)
	if code != http.StatusOK {
		refuse(w, code, why)
		return
	}
	_ = control.SetReadDeadline(time.Time{}) // the upload server watches over who is silent
	logger := log.FromContext(r.Context()).WithValues("claim", claim.Namespace+"/"+claim.Name)
	filled, err := p.Claims.AwaitReady(r.Context(), claim)
	switch {
	case errors.Is(err, errAnother):
		refuse(w, http.StatusUnauthorized, err.Error())
		return
	case err != nil:
		logger.Info("refusing an upload", "reason", err.Error())
		upload.Refuse(w, r, http.StatusServiceUnavailable, err.Error())
		return
	}
	transport, err := p.Trust.Transport(r.Context())
	if err != nil {
		logger.Error(err, "reaching upload servers")
		upload.Refuse(w, r, http.StatusServiceUnavailable, "cdi-uploadproxy has no certificate for upload servers yet; try again soon")
		return
	}
	logger.Info("handing an upload on", "method", r.Method, "path", r.URL.Path, "bytes", r.ContentLength)
	p.handOn(w, r, filled, transport)
}

// bearer is how a token is given; the scheme's name in any case.
var bearer = regexp.MustCompile(`(?i)^Bearer\s+([A-Za-z0-9\-._~+/]+)$`)

// authorize returns the claim that r's token is for, or a status that is not OK and why.
func (p *Proxy) authorize(r *http.Request) (claim upload.Target, code int, why string) {
	match := bearer.FindStringSubmatch(r.Header.Get("Authorization"))
	if match == nil {
		return claim, http.StatusBadRequest, "the header Authorization has no token; write Authorization: Bearer and the token of an UploadTokenRequest"
	}
	keys, err := p.Trust.Keys(r.Context())
	if err != nil {
		log.FromContext(r.Context()).Error(err, "no token can be known")
		return claim, http.StatusServiceUnavailable, "cdi-uploadproxy does not know yet by what tokens are known; try again soon"
	}
	claim, err = upload.Verify(keys, match[1], p.Now())
	switch {
	case errors.Is(err, upload.ErrPurpose):
		return claim, http.StatusBadRequest, "the token is not for an upload to a PersistentVolumeClaim"
	case err != nil:
		log.FromContext(r.Context()).V(1).Info("refusing a token", "reason", err.Error())
		return claim, http.StatusUnauthorized, "the token is not good, or not any more; create another UploadTokenRequest"
	}
	return claim, http.StatusOK, ""
}

// handOn sends r to the claim's upload server, and its answer back.
func (p *Proxy) handOn(w http.ResponseWriter, r *http.Request, claim upload.Target, transport http.RoundTripper) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // a test's recorder cannot
	refused, kept := false, r.WithContext(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		kept.Body = io.NopCloser(r.Body) // it is read on when the image is refused
	}
	to := &url.URL{Scheme: "https", Host: upload.ServerHost(claim.Namespace, claim.Name), Path: r.URL.Path}
	(&httputil.ReverseProxy{
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL, out.Out.Host = to, to.Host
			out.Out.Header.Del("Authorization") // the token has done its part
			out.Out.Header.Del("Cookie")
			out.Out.Header.Del("Origin")
			// A browser or virtctl may want to be asked for the body; that was answered here.
			out.Out.Header.Del("Expect")
		},
		Transport: transport,
		ModifyResponse: func(response *http.Response) error {
			if response.StatusCode >= http.StatusBadRequest {
				response.Header.Set("Connection", "close") // the body was not read to its end
				refused = true
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			log.FromContext(r.Context()).Error(err, "handing an upload on", "claim", claim.Namespace+"/"+claim.Name)
			upload.Refuse(w, r, http.StatusInternalServerError, "the upload server of the claim went away; look at pod "+upload.ServerName(claim.Name)+" and send the image again")
		},
	}).ServeHTTP(w, kept)
	if refused {
		_ = control.Flush()
		upload.Linger(control, r.Body)
	}
}

// refuse answers, and makes sure that nothing more of the request is read: what the sender is still
// sending is not taken just to be thrown away.
func refuse(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // a test's recorder has none
	http.Error(w, why, code)
}

// crossOrigin lets web pages of every origin send images: their users' tokens decide. It answers
// what browsers ask beforehand, and says whether it did.
func crossOrigin(w http.ResponseWriter, r *http.Request) bool {
	header := w.Header()
	header.Add("Vary", "Origin")
	asked := r.Header.Get("Access-Control-Request-Method")
	if r.Method == http.MethodOptions && asked != "" {
		header.Add("Vary", "Access-Control-Request-Method")
		header.Add("Vary", "Access-Control-Request-Headers")
		if r.Header.Get("Origin") != "" {
			header.Set("Access-Control-Allow-Origin", "*")
			header.Set("Access-Control-Allow-Methods", asked)
			if headers := r.Header.Get("Access-Control-Request-Headers"); headers != "" {
				header.Set("Access-Control-Allow-Headers", headers)
			}
		}
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	if r.Header.Get("Origin") != "" {
		header.Set("Access-Control-Allow-Origin", "*")
		header.Set("Access-Control-Expose-Headers", upload.HeaderOffset)
	}
	return false
}
