package subresource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// dialTimeout bounds how long virt-api waits for virt-handler to be there, and to prove itself.
const dialTimeout = 10 * time.Second

// passedOn are the headers of a client's request that virt-handler gets to see: none of those
// that say who asks, or carry what he proved it with.
var passedOn = []string{"Accept", "Content-Type", "Connection", "Upgrade", "User-Agent"}

// handler is how the virt-handler of one node is reached.
type handler struct {
	node    string
	address string
	// roots holds the one certificate that it serves with.
	roots *x509.CertPool
}

// handlerOf finds the virt-handler of vmi's node.
func (s *Server) handlerOf(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (handler, error) {
	node := &corev1.Node{}
	if err := s.live.Get(ctx, client.ObjectKey{Name: vmi.Status.NodeName}, node); err != nil {
		return handler{}, fmt.Errorf("reading Node %s: %w", vmi.Status.NodeName, err)
	}
	h := handler{node: node.Name, roots: x509.NewCertPool()}
	if !h.roots.AppendCertsFromPEM([]byte(node.Annotations[names.HandlerCertificateAnnotation])) {
		return handler{}, unavailable(node.Name, "it has not published its certificate")
	}
	pods := &corev1.PodList{}
	err := s.live.List(ctx, pods, client.InNamespace(s.options.Namespace),
		client.MatchingLabels{virtv1.AppLabel: "virt-handler"}, client.MatchingFields{"spec.nodeName": node.Name})
	if err != nil {
		return handler{}, fmt.Errorf("looking for virt-handler on node %s: %w", node.Name, err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" {
			h.address = net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(s.options.HandlerPort))
			return h, nil
		}
	}
	return handler{}, unavailable(node.Name, "no pod of it runs there")
}

func unavailable(node, why string) error {
	return refuse(apierrors.NewServiceUnavailable(fmt.Sprintf("virt-handler of node %s cannot be reached: %s; try again in a moment", node, why)))
}

// handOn lets virt-handler answer r, with verb. It ends when the session does that this began.
func (s *Server) handOn(w http.ResponseWriter, r *http.Request, vmi *virtv1.VirtualMachineInstance, verb string) error {
	target, err := s.handlerOf(r.Context(), vmi)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(s.options.TokenFile)
	if err != nil {
		return fmt.Errorf("reading the token for virt-handler: %w", err)
	}
	transport := target.transport()
	defer transport.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(request *httputil.ProxyRequest) {
			request.Out.URL = &url.URL{
				Scheme: "https", Host: target.address, RawQuery: request.In.URL.RawQuery,
				Path: fmt.Sprintf("/v1/namespaces/%s/virtualmachineinstances/%s/%s", vmi.Namespace, vmi.Name, verb),
			}
			request.Out.Host = target.node
			request.Out.Header = seen(request.Out.Header)
			request.Out.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			fail(w, r, unavailable(target.node, err.Error())) // it may be starting: the Node shows its new certificate in a moment
		},
	}
	proxy.ServeHTTP(w, r)
	return nil
}

// seen is what virt-handler sees of the headers of a client's request.
func seen(headers http.Header) http.Header {
	kept := http.Header{}
	for name, values := range headers {
		if slices.Contains(passedOn, name) || strings.HasPrefix(name, "Sec-Websocket-") {
			kept[name] = values
		}
	}
	return kept
}

// transport reaches only the process that the node's annotation tells of, for one request.
func (h handler) transport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		TLSClientConfig:     &tls.Config{RootCAs: h.roots, ServerName: names.HandlerServerName, MinVersion: tls.VersionTLS13},
		DisableKeepAlives:   true,
	}
}
