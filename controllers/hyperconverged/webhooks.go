package hyperconverged

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/names"
)

// The operator serves what concerns the HyperConverged object itself, and those that it makes of it: it must work
// before that object, and so virt-api, exists.
const (
	webhookService  = "virt-operator-webhook"
	webhookSecret   = "virt-operator-certs"
	pathConvert     = "/convert"
	pathValidate    = "/validate-hyperconverged"
	pathSSP         = "/validate-ssp"
	pathKubeVirt    = "/validate-kubevirt"
	pathCDI         = "/validate-cdi"
	managerWebhooks = names.ManagerOperator + "-webhooks"
	validatorName   = "virt-operator-validator"
)

// webhooks serves conversion and validation of HyperConverged objects and tells the API server where.
type webhooks struct {
	client  client.Client
	options Options
	keeper  *certs.Keeper
	clock   func() time.Time

	bundle []byte    // whom to trust, set by renew
	due    time.Time // when to renew again, set by renew
}

func newWebhooks(ctx context.Context, c client.Client, options Options, clock func() time.Time) (*webhooks, error) {
	hosts := []string{
		fmt.Sprintf("%s.%s.svc", webhookService, options.Namespace),
		fmt.Sprintf("%s.%s.svc.cluster.local", webhookService, options.Namespace),
	}
	if options.WebhookURL != "" {
		parsed, err := url.Parse(options.WebhookURL)
		if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || net.ParseIP(parsed.Hostname()) != nil {
			return nil, fmt.Errorf("webhook URL %q: write https://host:port, with a name for the host", options.WebhookURL)
		}
		hosts = []string{parsed.Hostname()}
	}
	w := &webhooks{client: c, options: options, clock: clock, keeper: &certs.Keeper{
		Secret: client.ObjectKey{Namespace: options.Namespace, Name: webhookSecret}, Hosts: hosts, Terms: certs.OfKubeVirt(),
	}}
	if err := w.keeper.Terms.Read(ctx, c); err != nil {
		return nil, err
	}
	return w, w.renew(ctx)
}

// renew makes the certificate when there is none, or a new one when it is time.
func (w *webhooks) renew(ctx context.Context) error {
	bundle, due, err := w.keeper.Keep(ctx, w.client, w.client, w.clock())
	if err != nil {
		return fmt.Errorf("preparing the operator's webhooks: %w", err)
	}
	w.bundle, w.due = bundle, due
	return nil
}

// server returns the HTTPS server that serves with the current certificate.
func (w *webhooks) server() webhook.Server {
	return webhook.NewServer(webhook.Options{
		Port: w.options.WebhookPort,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = w.keeper.Certificate
			w.options.TLS.Guard(c)
		}},
	})
}

// setup has mgr serve and announce them, and follow how long their certificate is valid.
func (w *webhooks) setup(mgr manager.Manager, known served) error {
	w.register(mgr)
	if err := mgr.Add(w); err != nil {
		return fmt.Errorf("adding webhooks: %w", err)
	}
	if !known.instances { // nor the KubeVirt object, beside another installation
		return nil
	}
	return w.keeper.Terms.Follow(mgr)
}

// register puts the handlers into mgr's server.
func (w *webhooks) register(mgr manager.Manager) {
	server := mgr.GetWebhookServer()
	server.Register(pathConvert, conversion.NewWebhookHandler(mgr.GetScheme(), conversion.NewRegistry()))
	server.Register(pathValidate, &admission.Webhook{Handler: &validator{
		reader: mgr.GetAPIReader(), decoder: admission.NewDecoder(mgr.GetScheme()), options: w.options,
	}})
	server.Register(pathSSP, &admission.Webhook{Handler: sspValidator(w.options.Namespace)})
	deployable := judge{options: w.options, reader: mgr.GetAPIReader(), try: func(ctx context.Context, object *unstructured.Unstructured) error {
		return try(ctx, w.client, object)
	}}
	server.Register(pathKubeVirt, &admission.Webhook{Handler: &kubeVirtValidator{reader: mgr.GetAPIReader(), judge: deployable}})
	server.Register(pathCDI, &admission.Webhook{Handler: &cdiValidator{judge: deployable}})
}

// NeedLeaderElection says that webhooks are served whoever leads: replicas share their certificates.
func (w *webhooks) NeedLeaderElection() bool { return false }

// Start tells the API server where the webhooks are, and again with every new certificate.
func (w *webhooks) Start(ctx context.Context) error {
	for {
		if err := w.announce(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.keeper.Terms.Changed():
		case <-time.After(w.due.Sub(w.clock())):
		}
		if err := w.renew(ctx); err != nil {
			return err
		}
	}
}

func (w *webhooks) announce(ctx context.Context) error {
	live, err := liveDefinition(ctx, w.client, hyperConvergedDefinition)
	if err != nil {
		return err
	}
	if live == nil || !isOurs(live) {
		return nil // another installation's; the object's condition tells
	}
	log.FromContext(ctx).Info("announcing webhooks", "hosts", w.keeper.Hosts)
	conversion := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"conversion": w.conversion()}}}
	conversion.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	conversion.SetName(hyperConvergedDefinition)
	if err := apply.Object(ctx, w.client, conversion, managerWebhooks); err != nil {
		return err
	}
	hooks := []any{w.validation(), w.validationOfSSP()}
	kubevirts, err := liveDefinition(ctx, w.client, kubeVirtDefinition)
	if err != nil {
		return err
	}
	if kubevirts != nil && isOurs(kubevirts) { // another installation judges its own
		hooks = append(hooks, w.validationOfKubeVirt())
	}
	cdis, err := liveDefinition(ctx, w.client, cdiDefinition)
	if err != nil {
		return err
	}
	if cdis != nil && isOurs(cdis) {
		hooks = append(hooks, w.validationOfCDI())
	}
	configuration := &unstructured.Unstructured{Object: map[string]any{"webhooks": hooks}}
	configuration.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"))
	configuration.SetName(validatorName)
	configuration.SetLabels(map[string]string{names.LabelManagedBy: names.ManagedBy})
	// It goes with the definition: an operator that was deleted must block nothing.
	if err := unstructured.SetNestedSlice(configuration.Object, []any{map[string]any{
		"apiVersion": apiextensionsv1.SchemeGroupVersion.String(), "kind": "CustomResourceDefinition",
		"name": live.GetName(), "uid": string(live.GetUID()),
	}}, "metadata", "ownerReferences"); err != nil {
		return fmt.Errorf("owning %s: %w", validatorName, err)
	}
	return apply.Object(ctx, w.client, configuration, managerWebhooks)
}

func (w *webhooks) conversion() map[string]any {
	return map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"}, "clientConfig": w.clientConfig(pathConvert),
	}}
}

func (w *webhooks) validation() map[string]any {
	return map[string]any{
		"name": "hyperconverged.virt-operator.kubevirt.io", "admissionReviewVersions": []any{"v1"},
		"sideEffects": "None", "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": int64(10),
		"clientConfig": w.clientConfig(pathValidate),
		"rules": []any{map[string]any{
			"apiGroups": []any{"hco.kubevirt.io"}, "apiVersions": []any{"v1"}, "resources": []any{"hyperconvergeds"},
			"operations": []any{"CREATE", "UPDATE", "DELETE"}, "scope": "Namespaced",
		}},
	}
}

func (w *webhooks) validationOfSSP() map[string]any {
	return map[string]any{
		"name": "ssp.virt-operator.kubevirt.io", "admissionReviewVersions": []any{"v1"},
		"sideEffects": "None", "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": int64(10),
		"clientConfig": w.clientConfig(pathSSP),
		"rules": []any{map[string]any{
			"apiGroups": []any{sspKind.Group}, "apiVersions": []any{sspKind.Version}, "resources": []any{"ssps"},
			"operations": []any{"CREATE"}, "scope": "Namespaced",
		}},
	}
}

func (w *webhooks) validationOfKubeVirt() map[string]any {
	return map[string]any{
		"name": "kubevirt.virt-operator.kubevirt.io", "admissionReviewVersions": []any{"v1"},
		"sideEffects": "None", "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": int64(10),
		"clientConfig":      w.clientConfig(pathKubeVirt),
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: w.options.Namespace}},
		"rules": []any{map[string]any{
			"apiGroups": []any{virtv1.GroupVersion.Group}, "apiVersions": []any{virtv1.GroupVersion.Version}, "resources": []any{"kubevirts"},
			"operations": []any{"CREATE", "UPDATE", "DELETE"}, "scope": "Namespaced",
		}},
	}
}

// validationOfCDI is beside that of virt-api, which does not know what components are made of. Who sees to the object's end is not asked.
func (w *webhooks) validationOfCDI() map[string]any {
	return map[string]any{
		"name": "cdi.virt-operator.kubevirt.io", "admissionReviewVersions": []any{"v1"},
		"sideEffects": "None", "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": int64(10),
		"clientConfig": w.clientConfig(pathCDI),
		"rules": []any{map[string]any{
			"apiGroups": []any{cdiKind.Group}, "apiVersions": []any{cdiKind.Version}, "resources": []any{"cdis"},
			"operations": []any{"CREATE", "UPDATE"}, "scope": "Cluster",
		}},
	}
}

func (w *webhooks) clientConfig(path string) map[string]any {
	config := map[string]any{"caBundle": base64.StdEncoding.EncodeToString(w.bundle)}
	if w.options.WebhookURL != "" {
		config["url"] = w.options.WebhookURL + path
		return config
	}
	config["service"] = map[string]any{"namespace": w.options.Namespace, "name": webhookService, "path": path, "port": int64(443)}
	return config
}
