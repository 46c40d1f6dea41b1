// Package leftover removes what a run of tasks left behind when it was cancelled or timed out,
// and so did not come to its own clean-up: what it owns, and only that, while the run's object stays.
package leftover

import (
	"context"
	"fmt"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/slipway-vm/slipway/internal/served"
)

// kind is the one whose definition says that the cluster has Tekton.
var kind = served.Kind{Definition: "pipelineruns.tekton.dev", Version: "v1"}

// labelPipelineRun names the PipelineRun of a TaskRun and of its pod.
const labelPipelineRun = "tekton.dev/pipelineRun"

// SetupWithManager adds to mgr what runs as long as the cluster has Tekton.
func SetupWithManager(mgr ctrl.Manager) error {
	direct, err := client.NewWithWatch(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return fmt.Errorf("making a client for Tekton's definitions: %w", err)
	}
	sweeper := &sweeper{events: mgr.GetEventRecorder("leftover-controller")}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return served.While(ctx, direct, kind, func(ctx context.Context, _ bool) error { return serve(ctx, mgr, sweeper) })
	}))
	if err != nil {
		return fmt.Errorf("adding the controller of what runs leave behind: %w", err)
	}
	return nil
}

// serve runs the controllers until Tekton goes, with a cache of their own, which could not wait
// for kinds that are not there.
func serve(ctx context.Context, parent ctrl.Manager, s *sweeper) error {
	alone, err := labels.NewRequirement(labelPipelineRun, selection.DoesNotExist, nil)
	if err != nil {
		return fmt.Errorf("selecting TaskRuns without a pipeline: %w", err)
	}
	mgr, err := ctrl.NewManager(parent.GetConfig(), ctrl.Options{
		Scheme: parent.GetScheme(),
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&tektonv1.PipelineRun{}: {Transform: slim},
			&tektonv1.TaskRun{}:     {Transform: slim, Label: labels.NewSelector().Add(*alone)},
		}},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)}, // they may be made again
	})
	if err != nil {
		return fmt.Errorf("making the manager of runs: %w", err)
	}
	if s.secrets, err = kubernetes.NewForConfig(parent.GetConfig()); err != nil {
		return fmt.Errorf("making the client of Secrets: %w", err)
	}
	s.live, s.writer = mgr.GetAPIReader(), mgr.GetClient()
	if err := setup(mgr, s); err != nil {
		return err
	}
	log.FromContext(ctx).Info("The cluster has Tekton, what cancelled runs leave behind is removed")
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers of runs: %w", err)
	}
	return nil
}

func setup(mgr ctrl.Manager, s *sweeper) error {
	of := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool { return abandoned(object) != "" }))
	err := ctrl.NewControllerManagedBy(mgr).Named("leftover-pipelinerun").For(&tektonv1.PipelineRun{}, of).
		Complete(&Reconciler{cached: mgr.GetClient(), sweeper: s, make: func() client.Object { return &tektonv1.PipelineRun{} }})
	if err != nil {
		return fmt.Errorf("setting up the controller of what PipelineRuns leave behind: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("leftover-taskrun").For(&tektonv1.TaskRun{}, of).
		Complete(&Reconciler{cached: mgr.GetClient(), sweeper: s, make: func() client.Object { return &tektonv1.TaskRun{} }})
	if err != nil {
		return fmt.Errorf("setting up the controller of what TaskRuns leave behind: %w", err)
	}
	return nil
}

// slim drops what is not read of a run, which is most of it.
func slim(in any) (any, error) {
	switch run := in.(type) {
	case *tektonv1.PipelineRun:
		conditions := run.Status.Conditions
		run.ManagedFields, run.Spec, run.Status = nil, tektonv1.PipelineRunSpec{}, tektonv1.PipelineRunStatus{}
		run.Status.Conditions = conditions
	case *tektonv1.TaskRun:
		conditions := run.Status.Conditions
		run.ManagedFields, run.Spec, run.Status = nil, tektonv1.TaskRunSpec{}, tektonv1.TaskRunStatus{}
		run.Status.Conditions = conditions
	}
	return in, nil
}

// Reconciler sweeps after runs of one kind.
type Reconciler struct {
	cached  client.Reader
	sweeper *sweeper
	make    func() client.Object
}

// Reconcile removes what a run left behind. A run that ended has ended for good, so a cache that
// is behind can only make this late.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	run := r.make()
	if err := r.cached.Get(ctx, req.NamespacedName, run); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return ctrl.Result{}, nil // Kubernetes removes what it owned
		}
		return ctrl.Result{}, fmt.Errorf("reading run %s: %w", req, err)
	}
	why := abandoned(run)
	if why == "" || run.GetDeletionTimestamp() != nil || run.GetAnnotations()[AnnotationKeep] == "true" {
		return ctrl.Result{}, nil
	}
	again, err := r.sweeper.sweep(ctx, run, why)
	return ctrl.Result{RequeueAfter: again}, err
}
