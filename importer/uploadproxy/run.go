package uploadproxy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/importer/proxyserver"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/upload"
)

// Options configure cdi-uploadproxy.
type Options struct {
	// Namespace is that of the installation.
	Namespace string
	// Address is where images are taken, with TLS.
	Address string
	// HealthAddress is where health is served, MetricsAddress where metrics are; "0" serves none.
	HealthAddress, MetricsAddress string
	// Hosts are further names by which the proxy is reached, such as that of an Ingress that hands TLS through.
	Hosts []string
	// Extend adds what else the proxy does to its manager, before that starts; nil for nothing.
	Extend func(ctrl.Manager) error
	// Dial connects to upload servers by the names of their Services; nil does it by the cluster's DNS.
	Dial proxyserver.Dialer
}

// Run serves uploads to claims of the cluster of config until ctx ends.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	known := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(known))
	utilruntime.Must(cdiv1.AddToScheme(known))
	policy := &tlspolicy.Policy{}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: known, BaseContext: func() context.Context { return ctx },
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:    {Namespaces: map[string]cache.Config{options.Namespace: {FieldSelector: one(upload.ClientSecret)}}},
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{options.Namespace: {FieldSelector: one(upload.SigningSecret)}}},
		}},
		HealthProbeBindAddress: options.HealthAddress, Metrics: metric.Server(options.MetricsAddress, policy),
	})
	if err != nil {
		return fmt.Errorf("making cdi-uploadproxy's manager: %w", err)
	}
	live, err := client.NewWithWatch(config, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("reaching the API server: %w", err)
	}
	if err := policy.FollowCDI(mgr); err != nil {
		return fmt.Errorf("preparing cdi-uploadproxy: %w", err)
	}
	if options.Extend != nil {
		if err := options.Extend(mgr); err != nil {
			return fmt.Errorf("preparing cdi-uploadproxy: %w", err)
		}
	}
	proxy := &Proxy{
		Claims: &Cluster{Client: live}, Now: time.Now,
		Trust: &Published{Namespace: options.Namespace, Reader: mgr.GetCache(), Dial: options.Dial},
	}
	return proxyserver.Run(ctx, mgr, live, proxyserver.Options{
		Name: upload.ProxyName, Namespace: options.Namespace, Hosts: options.Hosts, Address: options.Address,
		Secret: upload.ProxySecret, Bundle: upload.ProxyBundle, KeyBundle: upload.KeyBundle, Handler: proxy, TLS: policy, Terms: certs.OfCDI(false), Now: time.Now,
	}, &corev1.Secret{}, &corev1.ConfigMap{})
}
