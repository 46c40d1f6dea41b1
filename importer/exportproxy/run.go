package exportproxy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/importer/proxyserver"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// Options configure virt-exportproxy.
type Options struct {
	// Namespace is that of the installation.
	Namespace string
	// Address is where exports are reached, with TLS.
	Address string
	// HealthAddress is where health is served, MetricsAddress where metrics are; "0" serves none.
	HealthAddress, MetricsAddress string
	// Hosts are further names by which the proxy is reached, such as that of an Ingress that hands TLS through.
	Hosts []string
	// Dial connects to the servers of exports by the names of their Services; nil does it by the cluster's DNS.
	Dial proxyserver.Dialer
}

// Run serves the exports of the cluster of config until ctx ends.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	known := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(known))
	utilruntime.Must(exportv1.AddToScheme(known))
	utilruntime.Must(virtv1.AddToScheme(known))
	policy := &tlspolicy.Policy{}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: known, BaseContext: func() context.Context { return ctx }, Cache: cache.Options{DefaultTransform: slim},
		HealthProbeBindAddress: options.HealthAddress, Metrics: metric.Server(options.MetricsAddress, policy),
	})
	if err != nil {
		return fmt.Errorf("making virt-exportproxy's manager: %w", err)
	}
	live, err := client.New(config, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: known, Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("reaching the API server: %w", err)
	}
	if err := policy.FollowKubeVirt(mgr); err != nil {
		return fmt.Errorf("preparing virt-exportproxy: %w", err)
	}
	return proxyserver.Run(ctx, mgr, live, proxyserver.Options{
		Name: vmexport.ProxyName, Namespace: options.Namespace, Hosts: options.Hosts, Address: options.Address,
		Secret: vmexport.ProxySecret, Bundle: vmexport.ProxyBundle, KeyBundle: vmexport.KeyBundle,
		Handler: &Proxy{Exports: mgr.GetCache(), Dial: options.Dial}, TLS: policy, Terms: certs.OfKubeVirt(), Now: time.Now,
	}, &exportv1.VirtualMachineExport{})
}

// slim drops what the proxy does not read of an export, and of the KubeVirt object.
func slim(in any) (any, error) {
	if object, ok := in.(client.Object); ok {
		object.SetManagedFields(nil)
	}
	if export, ok := in.(*exportv1.VirtualMachineExport); ok {
		export.Annotations, export.Labels = nil, nil
		if export.Status != nil {
			export.Status.Conditions = nil
		}
	}
	return in, nil
}
