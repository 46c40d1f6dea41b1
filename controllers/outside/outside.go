// Package outside finds at which name a Service of the installation is reached from outside of the cluster: by an Ingress or a Route
// that somebody made in its namespace.
package outside

import (
	"context"
	"fmt"
	"slices"
	"strings"

	routev1 "github.com/openshift/api/route/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ByIngress is the host of the first Ingress by name that leads to the service, "" when none does.
func ByIngress(ctx context.Context, reader client.Reader, namespace, service string) (string, error) {
	all := &networkingv1.IngressList{}
	if err := reader.List(ctx, all, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("looking for an Ingress to %s: %w", service, err)
	}
	slices.SortFunc(all.Items, func(a, b networkingv1.Ingress) int { return strings.Compare(a.Name, b.Name) })
	for i := range all.Items {
		if host := hostOfIngress(&all.Items[i], service); host != "" {
			return host, nil
		}
	}
	return "", nil
}

// ByRoute is the host of the first Route by name that leads to the service, "" when none does or the cluster has no Routes.
func ByRoute(ctx context.Context, reader client.Reader, namespace, service string) (string, error) {
	all := &routev1.RouteList{}
	err := reader.List(ctx, all, client.InNamespace(namespace))
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("looking for a Route to %s: %w", service, err)
	}
	slices.SortFunc(all.Items, func(a, b routev1.Route) int { return strings.Compare(a.Name, b.Name) })
	for i := range all.Items {
		if host := hostOfRoute(&all.Items[i], service); host != "" {
			return host, nil
		}
	}
	return "", nil
}

// hostOfIngress is the name at which ingress leads to the service, "" when it does not, or at any name.
func hostOfIngress(ingress *networkingv1.Ingress, service string) string {
	leads := func(to *networkingv1.IngressBackend) bool {
		return to != nil && to.Service != nil && to.Service.Name == service
	}
	byDefault := leads(ingress.Spec.DefaultBackend)
	for _, rule := range ingress.Spec.Rules {
		if rule.Host == "" || strings.HasPrefix(rule.Host, "*") { // which no client could ask for
			continue
		}
		if byDefault || rule.HTTP != nil && slices.ContainsFunc(rule.HTTP.Paths, func(path networkingv1.HTTPIngressPath) bool { return leads(&path.Backend) }) {
			return rule.Host
		}
	}
	return ""
}

// hostOfRoute is the name at which route leads to the service, "" when it does not, or not yet.
func hostOfRoute(route *routev1.Route, service string) string {
	if route.Spec.To.Name != service || len(route.Status.Ingress) == 0 {
		return ""
	}
	return route.Status.Ingress[0].Host
}
