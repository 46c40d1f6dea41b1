package admission

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/names"
)

// What names the authorities of virt-api's certificate, which the operator makes.
const (
	validatorName = "virt-api-validator"
	mutatorName   = "virt-api-mutator"
	// aggregatorLabel is the value of label kubevirt.io of the APIServices.
	aggregatorLabel = "virt-api-aggregator"
)

// apiServiceKind is of a module of its own, of which this one field is all that is needed.
var apiServiceKind = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

// bundler renews the certificates and tells the API server whom to trust. Every replica
// does it; they agree through the Secret, and write the same.
type bundler struct {
	client.Client
	live   client.Reader
	keeper *certs.Keeper
	now    func() time.Time
}

// watched are the objects that the API's cache holds, each by its one name or label.
func watched() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		apiService(): {Label: labels.SelectorFromSet(labels.Set{virtv1.AppLabel: aggregatorLabel})},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: fields.OneTermEqualSelector("metadata.name", validatorName)},
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   {Field: fields.OneTermEqualSelector("metadata.name", mutatorName)},
	}
}

func apiService() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(apiServiceKind)
	return object
}

func (b *bundler) setup(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: b.keeper.Secret}}
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("certificates").
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, all).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, all).
		Watches(apiService(), all).
		Watches(&virtv1.KubeVirt{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(b)
	if err != nil {
		return fmt.Errorf("setting up the certificates' controller: %w", err)
	}
	return nil
}

// Reconcile renews what is due and writes the authorities into both configurations and the APIServices.
func (b *bundler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if err := b.keeper.Terms.Read(ctx, b.Client); err != nil {
		return ctrl.Result{}, err
	}
	now := b.now()
	bundle, next, err := b.keeper.Keep(ctx, b.live, b.Client, now)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("keeping the certificates: %w", err)
	}
	if err := errors.Join(b.trust(ctx, bundle), b.trustAggregated(ctx, bundle)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(next.Sub(now), time.Minute)}, nil
}

// trust writes bundle into every webhook that has another.
func (b *bundler) trust(ctx context.Context, bundle []byte) error {
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	for _, configuration := range []struct {
		name     string
		object   client.Object
		webhooks func() map[string][]byte
	}{
		{validatorName, validating, func() map[string][]byte { return bundlesOf(validating.Webhooks, validatingBundle) }},
		{mutatorName, mutating, func() map[string][]byte { return bundlesOf(mutating.Webhooks, mutatingBundle) }},
	} {
		err := b.Get(ctx, client.ObjectKey{Name: configuration.name}, configuration.object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", configuration.name, err)
		}
		webhooks := bundleFields(configuration.webhooks(), bundle)
		if webhooks == nil {
			continue
		}
		if err := apply.Fields(ctx, b.Client, configuration.object, names.ManagerAPI, map[string]any{"webhooks": webhooks}); err != nil {
			return fmt.Errorf("writing the certificate authorities: %w", err)
		}
	}
	return nil
}

// trustAggregated writes bundle into every APIService that has another.
func (b *bundler) trustAggregated(ctx context.Context, bundle []byte) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(apiServiceKind)
	if err := b.live.List(ctx, list, client.MatchingLabels{virtv1.AppLabel: aggregatorLabel}); err != nil {
		return fmt.Errorf("listing APIServices: %w", err)
	}
	wanted := base64.StdEncoding.EncodeToString(bundle)
	for i := range list.Items {
		service := &list.Items[i]
		if current, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle"); current == wanted {
			continue
		}
		if err := apply.Fields(ctx, b.Client, service, names.ManagerAPI, map[string]any{"spec": map[string]any{"caBundle": wanted}}); err != nil {
			return fmt.Errorf("writing the certificate authorities: %w", err)
		}
	}
	return nil
}

func bundlesOf[T any](webhooks []T, of func(T) (string, []byte)) map[string][]byte {
	all := map[string][]byte{}
	for _, webhook := range webhooks {
		name, bundle := of(webhook)
		all[name] = bundle
	}
	return all
}

func validatingBundle(w admissionregistrationv1.ValidatingWebhook) (string, []byte) {
	return w.Name, w.ClientConfig.CABundle
}

func mutatingBundle(w admissionregistrationv1.MutatingWebhook) (string, []byte) {
	return w.Name, w.ClientConfig.CABundle
}

// bundleFields is what to write for bundle to be every webhook's; nil when it is.
func bundleFields(current map[string][]byte, bundle []byte) []any {
	var all []any
	stale := false
	for _, name := range slices.Sorted(maps.Keys(current)) {
		stale = stale || !bytes.Equal(current[name], bundle)
		all = append(all, map[string]any{"name": name, "clientConfig": map[string]any{"caBundle": bundle}})
	}
	if !stale {
		return nil
	}
	return all
}
