// Package subresource is the aggregated API subresources.kubevirt.io: users start and stop
// virtual machines with it, ask and pause them, and reach into them. The API server hands its
// requests on to virt-api, as a front proxy that says who asks; virt-api asks the API server
// whether he may, and does it, or hands the request on to virt-handler on the machine's node.
//
// What there is stands in the lists of routes.go.
package subresource

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/names"
)

// TokenFile is where virt-api's pod has the token that virt-handler knows it by.
const TokenFile = "/var/run/secrets/" + names.Domain + "handler/token"

// HandlerPort is where virt-handler serves on every node.
const HandlerPort = 8186

// Options configure the API.
type Options struct {
	// Namespace is where Slipway is installed, with virt-handler.
	Namespace string
	// Version is what users are told that runs here.
	Version string
	// TokenFile is read for every request that is handed on to virt-handler.
	TokenFile string
	// HandlerPort is where virt-handler serves.
	HandlerPort int
}

// Server answers the requests of the aggregated API.
type Server struct {
	options  Options
	live     client.Reader
	client   client.Client
	resolver instancetype.Resolver
	proxy    *frontProxy
	ping     func(context.Context) error
	mux      *http.ServeMux
}

// Setup serves the API with mgr's webhook server, at every path that no webhook has, and
// follows the configuration of the front proxy while mgr runs.
func Setup(mgr ctrl.Manager, options Options) error {
	config := mgr.GetConfig()
	core, err := corev1client.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	asked, err := discovery.NewDiscoveryClientForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	proxy := &frontProxy{configMaps: core.RESTClient(), log: mgr.GetLogger().WithName("front-proxy")}
	if err := mgr.Add(proxy); err != nil {
		return fmt.Errorf("following the configuration of the front proxy: %w", err)
	}
	mgr.GetWebhookServer().Register("/", newServer(mgr.GetAPIReader(), mgr.GetClient(), proxy, func(context.Context) error {
		_, err := asked.ServerVersion()
		return err //nolint:wrapcheck // said as it is
	}, options))
	return nil
}

func newServer(live client.Reader, writer client.Client, proxy *frontProxy, ping func(context.Context) error, options Options) *Server {
	s := &Server{
		options: options, live: live, client: writer, proxy: proxy, ping: ping,
		resolver: instancetype.Resolver{Reader: live},
	}
	s.mux = s.routed()
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }
