package hyperconverged

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	conditionsv1 "github.com/openshift/custom-resource-status/conditions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	sspv1beta3 "github.com/slipway-vm/slipway/internal/api/ssp/v1beta3"
	"github.com/slipway-vm/slipway/internal/names"
)

// bundlePipelines is the bundle that the SSP object's tektonPipelines is about; all others are tasks.
const bundlePipelines = "pipelines"

var sspKind = sspv1beta3.GroupVersion.WithKind("SSP")

// sspSpec is what the HyperConverged object says of tasks and pipelines, in the SSP object's words.
func sspSpec(hco *hcov1.HyperConverged) (map[string]any, error) {
	sources := hco.Spec.WorkloadSources
	in := func(one string) *sspv1beta3.Tekton {
		if one == "" && len(sources.TektonNamespaces) == 0 {
			return nil
		}
		return &sspv1beta3.Tekton{Namespace: one, Namespaces: sources.TektonNamespaces}
	}
	spec := sspv1beta3.SSPSpec{TektonTasks: in(sources.TektonTasksNamespace), TektonPipelines: in(sources.TektonPipelinesNamespace)}
	if spec.TektonTasks != nil || spec.TektonPipelines != nil {
		spec.FeatureGates = &sspv1beta3.FeatureGates{DeployTektonTaskResources: true}
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	if err != nil {
		return nil, fmt.Errorf("encoding the spec of SSP: %w", err)
	}
	return raw, nil
}

// settings are what the SSP object asks for, with what the annotation of HyperConverged patched.
func settings(object *unstructured.Unstructured) (*sspv1beta3.SSPSpec, error) {
	ssp := &sspv1beta3.SSP{}
	data, err := json.Marshal(object.Object)
	if err == nil {
		err = json.Unmarshal(data, ssp)
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s sets what SSP cannot hold: %w", hcov1.AnnotationSSPPatch, err)
	}
	return &ssp.Spec, nil
}

// namespacesOf returns the namespaces that get the bundle.
func namespacesOf(spec *sspv1beta3.SSPSpec, bundle, own string) []string {
	if spec.FeatureGates == nil || !spec.FeatureGates.DeployTektonTaskResources {
		return nil
	}
	asked := spec.TektonTasks
	if bundle == bundlePipelines {
		asked = spec.TektonPipelines
	}
	if asked == nil && (spec.TektonTasks != nil || spec.TektonPipelines != nil) {
		return nil // only the other one is asked for
	}
	return asked.In(own)
}

// overwriteSSP makes the spec of an SSP object that exists what HyperConverged says. It comes before
// the object is applied: applying alone would leave what others added, and where nothing of a part
// of the spec is applied any more it would leave a null, which the API server refuses.
func (r *Reconciler) overwriteSSP(ctx context.Context, wanted *sspv1beta3.SSPSpec) error {
	live, err := r.liveSSP(ctx)
	if live == nil || err != nil || equality.Semantic.DeepEqual(live.Spec, *wanted) {
		return err
	}
	before := live.DeepCopy()
	live.Spec = *wanted
	err = r.Client.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(names.ManagerOperator))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("overwriting the spec of SSP %s: %w", sspv1beta3.Name, err)
	}
	return nil
}

// readSSP reads the SSP object for its status, and whether it is paused.
func (r *Reconciler) readSSP(ctx context.Context, s *scope) error {
	live, err := r.liveSSP(ctx)
	if live == nil || err != nil {
		return err
	}
	s.ssp, s.paused = live, live.Annotations[sspv1beta3.AnnotationPaused] == "true"
	return nil
}

// liveSSP reads the SSP object from the API server, nil when there is none: the cache may not
// know what this pass wrote.
func (r *Reconciler) liveSSP(ctx context.Context) (*sspv1beta3.SSP, error) {
	live := &sspv1beta3.SSP{}
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Options.Namespace, Name: sspv1beta3.Name}, live)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // it is not there
	}
	if err != nil {
		return nil, fmt.Errorf("reading SSP %s: %w", sspv1beta3.Name, err)
	}
	return live, nil
}

// isBundled says whether the object is one of a bundle's.
func (r *Reconciler) isBundled(object client.Object) bool {
	return slices.ContainsFunc(r.Options.Bundles, func(b Bundle) bool { return b.Name == object.GetLabels()[LabelComponent] })
}

// sspStatus returns the status of the SSP object, which is about tasks and pipelines alone.
// While the object is paused nothing is known that is new.
func sspStatus(s *scope, version string, now metav1.Time) sspv1beta3.SSPStatus {
	status := *s.ssp.Status.DeepCopy()
	status.ObservedGeneration = s.ssp.Generation
	status.Paused = s.paused
	if s.paused {
		return status
	}
	status.OperatorVersion, status.TargetVersion = version, version
	sum := summarizeBundles(s)
	set := func(kind conditionsv1.ConditionType, v verdict) {
		status.Conditions = withCDICondition(status.Conditions, kind, v, now)
	}
	set(conditionsv1.ConditionAvailable, sum.Available)
	set(conditionsv1.ConditionProgressing, sum.Progressing)
	set(conditionsv1.ConditionDegraded, sum.Degraded)
	status.Phase = sdkapi.PhaseDeploying
	if sum.Available.Yes {
		status.Phase, status.ObservedVersion = sdkapi.PhaseDeployed, version
	}
	return status
}

// summarizeBundles answers the questions of conditions for tasks and pipelines.
func summarizeBundles(s *scope) summary {
	well := verdict{true, ReasonCompleted, messageBundles}
	sum := summary{Available: well, Progressing: well.not(), Degraded: well.not(), Complete: well}
	switch {
	case !s.bundled && s.err != nil:
		failed := verdict{true, ReasonFailed, s.err.Error()}
		sum.Available, sum.Degraded, sum.Complete = failed.not(), failed, failed.not()
	case len(s.waiting) > 0:
		waits := verdict{true, ReasonWaiting, strings.Join(s.waiting, "; ")}
		sum.Available, sum.Progressing = waits.not(), waits
	}
	return sum
}
