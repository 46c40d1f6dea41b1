// Package subresource is the aggregated API subresources.kubevirt.io: users start and stop
// virtual machines with it, ask and pause them, and reach into them. The API server hands its
// requests on to virt-api, as a front proxy that says who asks; virt-api asks the API server
// whether he may, and does it, or hands the request on to virt-handler on the machine's node.
//
// What there is stands in the lists of routes.go, and in those of its neighbours: uploads and templates.
package subresource

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/upload"
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
	// GuestfsImage holds the guestfs tools; "" where users must name one.
	GuestfsImage string
	// TokenFile is read for every request that is handed on to virt-handler.
	TokenFile string
	// HandlerPort is where virt-handler serves.
	HandlerPort int
	// Certificates is the name of the Secret with virt-api's certificates and their authority.
	Certificates string
}

// Server answers the requests of the aggregated API.
type Server struct {
	options  Options
	live     client.Reader
	client   client.Client
	resolver instancetype.Resolver
	proxy    *frontProxy
	ping     func(context.Context) error
	signing  *upload.SigningKey // nil gives out no tokens
	dumping  chan struct{}      // holds who collects profiles
	mux      *http.ServeMux
}

// Setup serves the API with mgr's webhook server, at every path that no webhook has, and
// follows the configuration of the front proxy while mgr runs.
func Setup(mgr ctrl.Manager, options Options) error {
	if err := metric.Register(tunnels); err != nil {
		return err
	}
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
	server := newServer(mgr.GetAPIReader(), mgr.GetClient(), proxy, func(context.Context) error {
		_, err := asked.ServerVersion()
		return err //nolint:wrapcheck // said as it is
	}, options)
	server.signing = &upload.SigningKey{Namespace: options.Namespace, Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Now: time.Now}
	if err := mgr.Add(keySpreader{server.signing}); err != nil {
		return fmt.Errorf("keeping the key that signs tokens: %w", err)
	}
	mgr.GetWebhookServer().Register("/", server)
	return nil
}

// keySpreader has the key that signs upload tokens made before the first token is asked for, so that
// cdi-uploadproxy knows it by then.
type keySpreader struct{ key *upload.SigningKey }

// NeedLeaderElection says that every replica does it; one wins.
func (keySpreader) NeedLeaderElection() bool { return false }

// Start makes the key. When that fails, the first request for a token does it.
func (k keySpreader) Start(ctx context.Context) error {
	if _, err := k.key.Get(ctx); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "making the key that signs upload tokens")
	}
	return nil
}

func newServer(live client.Reader, writer client.Client, proxy *frontProxy, ping func(context.Context) error, options Options) *Server {
	s := &Server{
		options: options, live: live, client: writer, proxy: proxy, ping: ping,
		resolver: instancetype.Resolver{Reader: live}, dumping: make(chan struct{}, 1),
	}
	s.mux = s.routed()
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }
