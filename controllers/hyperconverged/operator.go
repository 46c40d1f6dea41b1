package hyperconverged

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// lead is how the lease is kept, and how long what runs may take to end.
type lead struct{ duration, deadline, retry, grace time.Duration }

// slowLead renews slowly: an idle installation writes little, and a leader that ends in order gives its lease back.
var slowLead = lead{duration: 60 * time.Second, deadline: 40 * time.Second, retry: 20 * time.Second, grace: 30 * time.Second}

var namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace")

// establishTimeout bounds the wait for the API server to serve a new definition.
const establishTimeout = 5 * time.Minute

// Run is the operator until ctx ends.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	if err := options.Validate(); err != nil {
		return err
	}
	options, err := withKubeletRoot(options)
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 400 // an installation is some four hundred requests at once, then silence
	if err := metric.CountRequests(config); err != nil {
		return err
	}
	direct, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	if err := bootstrap(ctx, direct); err != nil {
		return err
	}
	hooks, err := newWebhooks(ctx, direct, options, time.Now)
	if err != nil {
		return err
	}
	known, err := kindsServed(direct)
	if err != nil {
		return err
	}
	mgr, err := newManager(config, options, hooks, known)
	if err != nil {
		return err
	}
	if err := hooks.setup(mgr, known); err != nil {
		return err
	}
	reconciler := &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Cache: mgr.GetCache(), Clock: time.Now, Options: options,
		SizesFiltered: !known.sizes, InstancesFiltered: !known.instances,
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return err
	}
	if options.Extend != nil {
		if err := options.Extend(mgr); err != nil {
			return fmt.Errorf("preparing the operator: %w", err)
		}
	}
	log.FromContext(ctx).Info("starting operator", "version", options.Version, "namespace", options.Namespace, "kubeletRoot", options.KubeletRoot)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the operator: %w", err)
	}
	return nil
}

// bootstrap makes the API server know the kinds, unless another installation defined them;
// then only HyperConverged, whose condition says so, when even that is missing.
func bootstrap(ctx context.Context, c client.WithWatch) error {
	foreign, err := foreignDefinitions(ctx, c)
	if err != nil {
		return err
	}
	own, err := definitions()
	if err != nil {
		return err
	}
	if len(foreign) > 0 {
		log.FromContext(ctx).Info("another installation is in this cluster; its definitions stay as they are", "found", foreign)
		own = only(own, hyperConvergedDefinition)
	}
	if err := applyThese(ctx, c, c, own); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	for _, d := range own {
		err := await.Object(ctx, c, &apiextensionsv1.CustomResourceDefinitionList{}, client.ObjectKey{Name: d.name},
			func(live *apiextensionsv1.CustomResourceDefinition, exists bool) (bool, error) {
				return exists && established(live) || d.optional(), nil
			})
		if err != nil {
			return fmt.Errorf("waiting for the API server to serve %s: %w", d.name, err)
		}
	}
	return nil
}

func established(d *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range d.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

func withKubeletRoot(options Options) (Options, error) {
	if options.KubeletRoot != "" {
		return options, nil
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return options, fmt.Errorf("looking for the kubelet's root folder: %w", err)
	}
	options.KubeletRoot = kubeletRootOf(mounts)
	if err := mounts.Close(); err != nil {
		return options, fmt.Errorf("closing the list of mounts: %w", err)
	}
	return options, nil
}

// served are the kinds of users' objects that the API server knows. Beside another installation it
// may not know all, and a cache of what is not served cannot be made.
type served struct {
	// sizes are instance types and preferences, instances VMIs.
	sizes, instances bool
}

func kindsServed(c client.Client) (served, error) {
	all := func(kinds ...schema.GroupVersionKind) (bool, error) {
		for _, kind := range kinds {
			if _, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
				return false, nil
			} else if err != nil {
				return false, fmt.Errorf("asking whether the API server knows %s: %w", kind.Kind, err)
			}
		}
		return true, nil
	}
	sizes, err := all(instancetypeKind, preferenceKind)
	if err != nil {
		return served{}, err
	}
	instances, err := all(virtv1.VirtualMachineInstanceGroupVersionKind)
	return served{sizes: sizes, instances: instances}, err
}

// newManager returns a manager whose cache holds only what the operator installed and what it has
// to see, of the kinds that are known.
func newManager(config *rest.Config, options Options, hooks *webhooks, known served) (manager.Manager, error) {
	installed, err := labels.NewRequirement(LabelComponent, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting what is installed: %w", err)
	}
	parts, err := labels.NewRequirement(podLabel, selection.In, []string{"virt-api", "virt-controller", "virt-handler", "virt-exportproxy", "cdi-uploadproxy"})
	if err != nil {
		return nil, fmt.Errorf("selecting the components' pods: %w", err)
	}
	former, err := labels.NewRequirement(virtv1.OutdatedLauncherImageLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting VMIs with a former launcher: %w", err)
	}
	here := map[string]cache.Config{options.Namespace: {}}
	everything := cache.ByObject{Label: labels.Everything()}
	byObject := map[client.Object]cache.ByObject{
		&hcov1.HyperConverged{}:                     {Namespaces: here, Label: labels.Everything()},
		&corev1.Pod{}:                               {Namespaces: here, Label: labels.NewSelector().Add(*parts)},
		&corev1.Namespace{}:                         everything,
		&schedulingv1.PriorityClass{}:               everything, // one of another's may be named
		&apiextensionsv1.CustomResourceDefinition{}: everything,
	}
	if known.instances {
		byObject[&virtv1.VirtualMachineInstance{}] = cache.ByObject{Label: labels.NewSelector().Add(*former)}
	}
	if known.sizes { // others' too, whose names are taken
		byObject[&v1beta1.VirtualMachineClusterInstancetype{}] = everything
		byObject[&v1beta1.VirtualMachineClusterPreference{}] = everything
	}
	if options.lead == (lead{}) {
		options.lead = slowLead
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme: scheme.New(), WebhookServer: hooks.server(),
		Cache: cache.Options{
			DefaultTransform:     cache.TransformStripManagedFields(),
			DefaultLabelSelector: labels.NewSelector().Add(*installed),
			ByObject:             byObject,
		},
		LeaderElection: true, LeaderElectionID: "virt-operator", LeaderElectionNamespace: options.Namespace,
		LeaderElectionReleaseOnCancel: true, LeaseDuration: &options.lead.duration, RenewDeadline: &options.lead.deadline, RetryPeriod: &options.lead.retry,
		GracefulShutdownTimeout: &options.lead.grace,
		HealthProbeBindAddress:  options.HealthAddress,
		Metrics:                 metric.Server(options.MetricsAddress, options.TLS),
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	for add, check := range map[string]func(string, healthz.Checker) error{"healthz": mgr.AddHealthzCheck, "readyz": mgr.AddReadyzCheck} {
		if err := check(add, healthz.Ping); err != nil {
			return nil, fmt.Errorf("adding the health check: %w", err)
		}
	}
	return mgr, metric.Register(metric.Component{Name: "virt_operator", Ready: healthz.Ping, Elected: mgr.Elected()})
}

// SetupWithManager watches the HyperConverged object, definitions, and what namespaces and
// pods there are; the kinds that are installed are watched when they first are.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	c, err := controller.New("hyperconverged", mgr, controller.Options{
		Reconciler: r, MaxConcurrentReconciles: 1,
		SkipNameValidation: new(true), // tests run one operator after the other in one process
	})
	if err != nil {
		return fmt.Errorf("making the controller: %w", err)
	}
	definition, namespace := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	namespace.SetGroupVersionKind(namespaceKind)
	if err := c.Watch(source.Kind(r.Cache, client.Object(&hcov1.HyperConverged{}), r.toTheOne(), asked())); err != nil {
		return fmt.Errorf("watching HyperConverged: %w", err)
	}
	for _, watched := range []client.Object{definition, namespace, &corev1.Pod{}} {
		if err := c.Watch(source.Kind(r.Cache, watched, r.toTheOne(), r.eventsOf(watched.GetObjectKind().GroupVersionKind())...)); err != nil {
			return fmt.Errorf("watching %T: %w", watched, err)
		}
	}
	r.controller = c
	return r.watchAhead(mgr)
}

// watchAhead begins to watch the kinds that will be installed and that the cluster serves
// now, all at once: done one after the other it would hold up the first pass.
func (r *Reconciler) watchAhead(mgr manager.Manager) error {
	planned, err := Planned(r.Options)
	if err != nil {
		return err
	}
	r.watched = map[schema.GroupVersionKind]bool{}
	for _, object := range planned {
		kind := object.GroupVersionKind()
		if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil || r.watched[kind] {
			continue // not served yet: watched when the first object of it is installed
		}
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(kind)
		if err := r.controller.Watch(source.Kind[client.Object](r.Cache, metadata, r.toTheOne(), r.eventsOf(kind)...)); err != nil {
			return fmt.Errorf("watching %s: %w", kind, err)
		}
		r.watched[kind] = true
	}
	return nil
}

// asked lets events through of what somebody asked for, and none of a status. The operator
// writes the status of these kinds itself: when a pass fails, the queue's back-off says when
// the next one is, and not the event of the status that tells of the failure.
func asked() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
}

// eventsOf says which events of a kind bring a pass; of workloads those of their status do, and of namespaces, which
// come and go all the time where pipelines are tried out, those of the ones that a pass asked for.
func (r *Reconciler) eventsOf(kind schema.GroupVersionKind) []predicate.Predicate {
	if kind == namespaceKind {
		return []predicate.Predicate{predicate.NewPredicateFuncs(func(namespace client.Object) bool {
			_, asked := r.home.Load(namespace.GetName())
			return asked
		})}
	}
	if kind == virtv1.VirtualMachineInstanceGroupVersionKind {
		return []predicate.Predicate{comesAndGoes()}
	}
	if kind == cronKind { // whose generation grows with its status
		return []predicate.Predicate{predicate.Or[client.Object](predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})}
	}
	if kind.Group == virtv1.GroupVersion.Group || kind.Group == cdiv1.SchemeGroupVersion.Group || kind == sspKind {
		return []predicate.Predicate{asked()}
	}
	return nil
}
