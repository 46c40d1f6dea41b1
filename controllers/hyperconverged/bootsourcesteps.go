package hyperconverged

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// retryAdmission is how long to wait before asking again for what could not be admitted.
const retryAdmission = 5 * time.Second

// admits is the component that DataImportCrons are admitted by.
const admits = "virt-api"

// namespaceState is how far a namespace can be used.
type namespaceState int

const (
	namespaceAbsent namespaceState = iota
	namespaceEnding
	namespaceThere
)

// planSources decides which boot sources are wanted, and adds the rights to their namespaces to what is.
// The one of the common boot images is made; others are waited for. Nothing waits for them, so the pass
// goes on where they cannot be planned, and leaves what there is of them as it is.
func (r *Reconciler) planSources(ctx context.Context, s *scope) error {
	s.unplanned = r.addSources(ctx, s)
	return nil
}

func (r *Reconciler) addSources(ctx context.Context, s *scope) error {
	if err := checkSources(s.hco); err != nil {
		return err // it came by admission before that knew better
	}
	shipped, err := r.commonSources()
	if err != nil {
		return err
	}
	s.sources = bootSources(s.hco, shipped)
	made, err := r.madeNamespace(ctx)
	if err != nil {
		return err
	}
	for _, namespace := range goldenNamespaces(s.hco, s.sources, made) {
		if err := r.planGolden(ctx, s, namespace); err != nil {
			return err
		}
	}
	s.undeployed = map[string]verdict{}
	for i := range s.sources {
		if err := r.planSource(ctx, s, &s.sources[i]); err != nil {
			return err
		}
	}
	return nil
}

// commonSources reads what is shipped once: it is always the same.
func (r *Reconciler) commonSources() ([]hcov1.DataImportCronTemplate, error) {
	if r.sources == nil {
		shipped, err := shippedSources(r.Options.BootSources)
		if err != nil {
			return nil, err
		}
		r.sources = shipped
	}
	return r.sources, nil
}

// planGolden adds the rights to the boot images of a namespace, and the namespace where it is the
// operator's to make. One that exists stays as it is, and none is deleted: images are in it.
func (r *Reconciler) planGolden(ctx context.Context, s *scope, name string) error {
	state, err := r.namespaceState(ctx, name)
	if err != nil {
		return err
	}
	switch {
	case state == namespaceAbsent && name == hcov1.CommonBootImageNamespace:
		namespace := &unstructured.Unstructured{}
		namespace.SetGroupVersionKind(namespaceKind)
		namespace.SetName(name)
		namespace.SetLabels(map[string]string{names.LabelManagedBy: names.ManagedBy})
		s.wanted = append(s.wanted, namespace)
	case state != namespaceThere:
		s.homeless = append(s.homeless, missingHome(name))
		return nil
	}
	rights, err := planRights(name, r.Options.Values())
	if err != nil {
		return err
	}
	s.wanted = append(s.wanted, rights...)
	return nil
}

// planSource adds the DataImportCron of a boot source, or says what it waits for.
func (r *Reconciler) planSource(ctx context.Context, s *scope, source *hcov1.DataImportCronTemplateStatus) error {
	home := homeOf(source)
	state, err := r.namespaceState(ctx, home)
	if err != nil {
		return err
	}
	made := state == namespaceAbsent && home == hcov1.CommonBootImageNamespace
	if state != namespaceThere && !made {
		s.undeployed[source.Name] = verdict{false, ReasonWaiting, missingHome(home)}
		if !slices.Contains(s.homeless, missingHome(home)) {
			s.homeless = append(s.homeless, missingHome(home))
		}
		return nil
	}
	cron, err := planCron(source, r.Options.Version)
	if err != nil {
		return err
	}
	s.crons = append(s.crons, cron)
	return nil
}

func missingHome(namespace string) string {
	return fmt.Sprintf("namespace %s, which gets boot images, does not exist or is being deleted", namespace)
}

// namespaceState says how far a namespace can be used.
func (r *Reconciler) namespaceState(ctx context.Context, name string) (namespaceState, error) {
	namespace, err := r.namespace(ctx, name)
	switch {
	case err != nil || namespace == nil:
		return namespaceAbsent, err
	case namespace.DeletionTimestamp != nil:
		return namespaceEnding, nil
	}
	return namespaceThere, nil
}

// madeNamespace says whether there is the namespace of boot images that the operator makes, made by it.
func (r *Reconciler) madeNamespace(ctx context.Context) (bool, error) {
	namespace, err := r.namespace(ctx, hcov1.CommonBootImageNamespace)
	if err != nil || namespace == nil || namespace.DeletionTimestamp != nil {
		return false, err
	}
	return namespace.Labels[names.LabelManagedBy] == names.ManagedBy, nil
}

// namespace reads a namespace; nil when there is none. Its events bring passes from now on.
func (r *Reconciler) namespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	r.home.Store(name, true)
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(namespaceKind)
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // it is not there
	}
	if err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return namespace, nil
}

// dropSources deletes the DataImportCrons that are no longer wanted. One that is made while another has its DataSource
// would wait for long.
func (r *Reconciler) dropSources(ctx context.Context, s *scope) error {
	if r.pruned == s.fingerprint {
		return nil
	}
	return r.pruneExcept(ctx, []schema.GroupVersionKind{cronKind}, r.kept(s))
}

// applySources makes the DataImportCrons that are wanted, once there is who admits them: its event
// brings the pass. Nothing waits for them, so the pass goes on where one cannot be made.
func (r *Reconciler) applySources(ctx context.Context, s *scope) error {
	if s.unplanned != nil || !ready(s.workloads, admits) {
		return nil
	}
	var problems *multierror.Error
	for _, cron := range s.crons {
		rival, err := r.applySource(ctx, cron)
		switch {
		case apierrors.IsInternalError(err): // who admits it is there, and not reached yet
			s.later = true
			s.undeployed[cron.GetName()] = verdict{false, ReasonFailed, err.Error()}
		case err != nil:
			problems = multierror.Append(problems, err)
			s.undeployed[cron.GetName()] = verdict{false, ReasonFailed, err.Error()}
		case rival:
			s.undeployed[cron.GetName()] = verdict{false, ReasonTaken, fmt.Sprintf(
				"DataImportCron %s/%s is not managed by Slipway and stays as it is; delete it, or give the boot source another name",
				cron.GetNamespace(), cron.GetName())}
		}
	}
	s.sourced = true
	if err := problems.ErrorOrNil(); err != nil {
		s.unsourced = fmt.Errorf("applying boot sources: %w", err)
	}
	return nil
}

// ready says whether a component is.
func ready(workloads []workload, name string) bool {
	return slices.ContainsFunc(workloads, func(w workload) bool { return w.Name == name && w.Missing == "" })
}

// applySource makes a DataImportCron what is wanted, and says whether somebody else's has the name.
// One of another spec, which cannot be changed, makes way; its images stay for the next one of its name.
func (r *Reconciler) applySource(ctx context.Context, wanted *unstructured.Unstructured) (rival bool, err error) {
	if err := r.watch(ctx, cronKind); err != nil {
		return false, err
	}
	known := &metav1.PartialObjectMetadata{}
	if there, err := findCron(ctx, r.Client, wanted, known); err != nil || there && asWanted(known, wanted) {
		return false, err
	}
	// The cache lags behind, and has only what the operator installed, without the specs.
	live, next := &unstructured.Unstructured{}, wanted.DeepCopy()
	there, err := findCron(ctx, r.Reader, wanted, live)
	switch {
	case err != nil:
		return false, err
	case !there:
		return false, apply.Object(ctx, r.Client, next, names.ManagerOperator)
	case !bearsOurName(live):
		return true, nil
	case asWanted(live, wanted) || live.GetDeletionTimestamp() != nil:
		return false, nil // the end of one brings the next pass
	}
	has, err := specOf(live)
	if err != nil {
		return false, err
	}
	gets, err := specOf(wanted)
	if err != nil {
		return false, err
	}
	if !equality.Semantic.DeepEqual(has, gets) {
		return false, r.makeWay(ctx, live, has)
	}
	next.Object["spec"] = live.Object["spec"] // as it is written there: another way of writing it would be refused
	return false, apply.Object(ctx, r.Client, next, names.ManagerOperator)
}

// makeWay deletes a DataImportCron whose spec is to be another. Its end brings the pass that makes the next one. What
// would go with it is left to that: without a network nobody could import it again.
func (r *Reconciler) makeWay(ctx context.Context, live *unstructured.Unstructured, spec *cdiv1.DataImportCronSpec) error {
	log.FromContext(ctx).Info("making a boot source anew", "dataImportCron", client.ObjectKeyFromObject(live))
	uid, propagation := live.GetUID(), metav1.DeletePropagationBackground
	if ptr.Deref(spec.RetentionPolicy, cdiv1.DataImportCronRetainAll) == cdiv1.DataImportCronRetainNone {
		propagation = metav1.DeletePropagationOrphan
	}
	err := r.Client.Delete(ctx, live, client.Preconditions{UID: &uid}, client.PropagationPolicy(propagation))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting DataImportCron %s/%s, whose spec is to be another: %w", live.GetNamespace(), live.GetName(), err)
	}
	return nil
}

// findCron reads what has the name of a DataImportCron, and says whether anything has.
func findCron(ctx context.Context, reader client.Reader, wanted *unstructured.Unstructured, into client.Object) (bool, error) {
	into.GetObjectKind().SetGroupVersionKind(cronKind)
	err := reader.Get(ctx, client.ObjectKeyFromObject(wanted), into)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading DataImportCron %s/%s: %w", wanted.GetNamespace(), wanted.GetName(), err)
	}
	return err == nil, nil
}

// sourcesStatus are the boot sources with what hinders them. What a pass did not get to is as it was before.
func sourcesStatus(s *scope, before []hcov1.DataImportCronTemplateStatus, now metav1.Time) []hcov1.DataImportCronTemplateStatus {
	if s.undeployed == nil {
		return before
	}
	known := map[string][]metav1.Condition{}
	for i := range before {
		known[before[i].Name] = before[i].DeepCopy().Status.Conditions
	}
	var sources []hcov1.DataImportCronTemplateStatus
	for i := range s.sources {
		source := s.sources[i].DeepCopy()
		source.Status.Conditions = known[source.Name]
		if hindered, is := s.undeployed[source.Name]; is {
			meta.SetStatusCondition(&source.Status.Conditions, metav1.Condition{
				Type: hcov1.ConditionDeployed, Status: metav1.ConditionFalse,
				Reason: hindered.Reason, Message: hindered.Message, LastTransitionTime: now,
			})
		} else if s.sourced {
			meta.RemoveStatusCondition(&source.Status.Conditions, hcov1.ConditionDeployed)
		}
		if len(source.Status.Conditions) == 0 {
			source.Status.Conditions = nil // as it comes back
		}
		sources = append(sources, *source)
	}
	return sources
}

// waits is what is missing outside, of tasks, pipelines and boot sources and of priorities, in a sentence.
func (s *scope) waits() string {
	missing := slices.Concat(s.waiting, s.homeless)
	if s.classless != "" {
		missing = append(missing, s.classless)
	}
	return strings.Join(missing, "; ")
}
