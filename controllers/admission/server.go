package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/controllers/admission/podeviction"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
)

// Options configure virt-api.
type Options struct {
	// Namespace is where Slipway is installed.
	Namespace string
	// Port is where the webhooks are served, by TLS.
	Port int
	// HealthAddress is where health is served, such as ":8080", MetricsAddress where metrics
	// are, with TLS; "0" serves none.
	HealthAddress, MetricsAddress string
	// Hosts are further names by which the API server reaches the webhooks.
	Hosts []string
	// TLS is how TLS is spoken; nil for 1.2 and newer.
	TLS *tlspolicy.Policy
	// WebhookLimiter bounds the requests that the webhooks make of the API server, beside those that config bounds; nil for as these.
	WebhookLimiter flowcontrol.RateLimiter
	// Extend adds what else virt-api does and serves to its manager, before that starts.
	Extend func(ctrl.Manager) error
}

// CertificatesSecret is the Secret with virt-api's certificates and their authority.
const CertificatesSecret = "virt-api-certs"

const serviceName = "virt-api"

// Run serves the webhooks of the cluster of config until ctx ends.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	keeper := &certs.Keeper{
		Secret: client.ObjectKey{Namespace: options.Namespace, Name: CertificatesSecret},
		Hosts:  append(hosts(options.Namespace), options.Hosts...),
		Terms:  certs.OfKubeVirt(),
	}
	config = rest.CopyConfig(config)
	if err := metric.CountRequests(config); err != nil {
		return err
	}
	mgr, err := newManager(ctx, config, options, keeper)
	if err != nil {
		return err
	}
	// The first certificate is there before the server is.
	if err := keeper.Terms.Read(ctx, mgr.GetAPIReader()); err != nil {
		return fmt.Errorf("preparing virt-api: %w", err)
	}
	if _, _, err := keeper.Keep(ctx, mgr.GetAPIReader(), mgr.GetClient(), time.Now()); err != nil {
		return fmt.Errorf("preparing virt-api: %w", err)
	}
	bundler := &bundler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), keeper: keeper, now: time.Now}
	if err := bundler.setup(mgr); err != nil {
		return err
	}
	reader, cached, err := webhookClients(mgr, config, options.WebhookLimiter)
	if err != nil {
		return err
	}
	server := mgr.GetWebhookServer()
	for path, handler := range Handlers(reader, cached, options.Namespace, time.Now) {
		server.Register(path, &admission.Webhook{Handler: handler, RecoverPanic: new(true)})
	}
	server.Register(podeviction.Path, &admission.Webhook{RecoverPanic: new(true), Handler: &podeviction.Webhook{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Events: mgr.GetEventRecorder("virt-api"),
	}})
	if options.Extend != nil {
		if err := options.Extend(mgr); err != nil {
			return fmt.Errorf("preparing virt-api: %w", err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running virt-api: %w", err)
	}
	return nil
}

// webhookClients are a reader of the API server and a client that reads from mgr's cache, both bounded by limiter.
func webhookClients(mgr ctrl.Manager, config *rest.Config, limiter flowcontrol.RateLimiter) (client.Reader, client.Client, error) {
	if limiter == nil {
		return mgr.GetAPIReader(), mgr.GetClient(), nil
	}
	config = rest.CopyConfig(config)
	config.RateLimiter = limiter
	options := client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()}
	reader, err := client.New(config, options)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting the webhooks to the API server: %w", err)
	}
	options.Cache = &client.CacheOptions{Reader: mgr.GetCache()}
	cached, err := client.New(config, options)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting the webhooks to the API server: %w", err)
	}
	return reader, cached, nil
}

// hosts are the names of virt-api's Service.
func hosts(namespace string) []string {
	service := serviceName + "." + namespace + ".svc"
	return []string{service, service + ".cluster.local", serviceName + "." + namespace}
}

func newManager(ctx context.Context, config *rest.Config, options Options, keeper *certs.Keeper) (ctrl.Manager, error) {
	server := webhook.NewServer(webhook.Options{
		Port: options.Port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = keeper.Certificate
			// The port is also that of the subresources, which look at the certificate themselves;
			// webhooks are called without one. Web sockets need HTTP/1.1.
			c.ClientAuth, c.NextProtos = tls.RequestClientCert, []string{"h2", "http/1.1"}
			options.TLS.Guard(c)
		}},
	})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme.New(),
		BaseContext:            func() context.Context { return ctx },
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: watched()},
		WebhookServer:          server,
		HealthProbeBindAddress: options.HealthAddress,
		Metrics:                metric.Server(options.MetricsAddress, options.TLS),
	})
	if err != nil {
		return nil, fmt.Errorf("making virt-api's manager: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("webhooks", server.StartedChecker())); err != nil {
		return nil, fmt.Errorf("serving health: %w", err)
	}
	return mgr, metric.Register(metric.Component{Name: "virt_api", Ready: server.StartedChecker()})
}
