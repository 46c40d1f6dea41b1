package hyperconverged

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/go-multierror"
	conditionsv1 "github.com/openshift/custom-resource-status/conditions/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeStatus writes the status of the HyperConverged object and of those that it created,
// where they differ from what is true now.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	now := metav1.NewTime(r.Clock())
	sum := summarize(s)
	var problems *multierror.Error
	status := hyperConvergedStatus(s, sum, r.Options.Version, now)
	if !equality.Semantic.DeepEqual(status, s.hco.Status) {
		problems = multierror.Append(problems, r.tell(ctx, s.hco, status))
	}
	if s.kubevirt != nil {
		status := kubeVirtStatus(s.kubevirt, sum, r.Options, now)
		if s.outdated != nil {
			status.OutdatedVirtualMachineInstanceWorkloads = s.outdated
		}
		if !equality.Semantic.DeepEqual(status, s.kubevirt.Status) {
			problems = multierror.Append(problems, r.tell(ctx, s.kubevirt, status))
		}
	}
	if s.cdi != nil {
		status := cdiStatus(s.cdi, sum, r.Options.Version, now)
		if !equality.Semantic.DeepEqual(status, s.cdi.Status) {
			problems = multierror.Append(problems, r.tell(ctx, s.cdi, status))
		}
	}
	if s.ssp != nil {
		status := sspStatus(s, r.Options.Version, now)
		if !equality.Semantic.DeepEqual(status, s.ssp.Status) {
			problems = multierror.Append(problems, r.tell(ctx, s.ssp, status))
		}
	}
	if err := problems.ErrorOrNil(); err != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	return nil
}

// tell writes status to object. One that is gone meanwhile needs none.
func (r *Reconciler) tell(ctx context.Context, object client.Object, status any) error {
	if err := apply.Status(ctx, r.Client, object, names.ManagerOperator, status); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// conditionTaken is on the HyperConverged object while objects of others keep common instance
// types or preferences from being installed.
const conditionTaken = "CommonInstancetypesIncomplete"

// conditionUnsourced is on it while boot sources could not be made. Nothing else waits for them.
const conditionUnsourced = "BootSourcesIncomplete"

// operatorVersion is the name of the version that the status tells.
const operatorVersion = "operator"

// hyperConvergedStatus returns the status that answers the present spec.
func hyperConvergedStatus(s *scope, sum summary, version string, now metav1.Time) hcov1.HyperConvergedStatus {
	status := *s.hco.Status.DeepCopy()
	status.ObservedGeneration = s.hco.Generation
	set := func(kind string, v verdict) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: asStatus(v.Yes), Reason: v.Reason, Message: v.Message,
			ObservedGeneration: s.hco.Generation, LastTransitionTime: now,
		})
	}
	set("ReconcileComplete", sum.Complete)
	set("Available", sum.Available)
	set("Progressing", sum.Progressing)
	set("Degraded", sum.Degraded)
	set("Upgradeable", upgradeable(sum))
	if patched := tainted(s.hco); patched != "" {
		set("TaintedConfiguration", verdict{true, ReasonTainted, "Configuration is patched by annotation " + patched})
	} else {
		meta.RemoveStatusCondition(&status.Conditions, "TaintedConfiguration")
	}
	switch {
	case len(s.taken) > 0:
		set(conditionTaken, verdict{true, ReasonTaken, takenMessage(s.taken)})
	case s.sized:
		meta.RemoveStatusCondition(&status.Conditions, conditionTaken)
	}
	switch problem := errors.Join(s.unplanned, s.unsourced); {
	case problem != nil:
		set(conditionUnsourced, verdict{true, ReasonFailed, problem.Error()})
	case s.sourced:
		meta.RemoveStatusCondition(&status.Conditions, conditionUnsourced)
	}
	status.DataImportSchedule = importSchedule(s.hco.UID)
	status.DataImportCronTemplates = sourcesStatus(s, status.DataImportCronTemplates, now)
	status.SystemHealthStatus = health(sum)
	status.RelatedObjects = related(s)
	if sum.Available.Yes && !sum.Progressing.Yes && sum.Complete.Yes {
		status.Versions = []hcov1.Version{{Name: operatorVersion, Version: version}}
	}
	return status
}

func upgradeable(sum summary) verdict {
	switch {
	case sum.Degraded.Yes:
		return sum.Degraded.not()
	case sum.Progressing.Yes && sum.Progressing.Reason != ReasonWaiting: // what is missing outside does not hinder
		return sum.Progressing.not()
	}
	return verdict{true, ReasonCompleted, messageAllWell}
}

func health(sum summary) string {
	switch {
	case sum.Degraded.Yes:
		return hcov1.HealthError
	case sum.Progressing.Yes || !sum.Available.Yes:
		return hcov1.HealthWarning
	}
	return hcov1.HealthHealthy
}

func tainted(hco *hcov1.HyperConverged) string {
	for _, annotation := range []string{hcov1.AnnotationKubeVirtPatch, hcov1.AnnotationCDIPatch, hcov1.AnnotationSSPPatch} {
		if hco.Annotations[annotation] != "" {
			return annotation
		}
	}
	return ""
}

func related(s *scope) []corev1.ObjectReference {
	references := s.hco.Status.RelatedObjects
	if s.kubevirt != nil && s.cdi != nil && s.ssp != nil {
		references = []corev1.ObjectReference{
			{
				APIVersion: kubeVirtKind.GroupVersion().String(), Kind: "KubeVirt",
				Namespace: s.kubevirt.Namespace, Name: s.kubevirt.Name, UID: s.kubevirt.UID,
			},
			{APIVersion: cdiKind.GroupVersion().String(), Kind: "CDI", Name: s.cdi.Name, UID: s.cdi.UID},
			{
				APIVersion: sspKind.GroupVersion().String(), Kind: sspKind.Kind,
				Namespace: s.ssp.Namespace, Name: s.ssp.Name, UID: s.ssp.UID,
			},
		}
	}
	return references
}

// kubeVirtStatus returns the status of the KubeVirt object, in the field's words: clients
// wait for phase Deployed and for condition Available.
func kubeVirtStatus(kubevirt *virtv1.KubeVirt, sum summary, options Options, now metav1.Time) virtv1.KubeVirtStatus {
	status := *kubevirt.Status.DeepCopy()
	generation := kubevirt.Generation
	status.ObservedGeneration = &generation
	status.OperatorVersion = options.Version
	status.TargetKubeVirtVersion = options.Version
	status.TargetDeploymentID = options.Version
	set := func(kind virtv1.KubeVirtConditionType, v verdict) {
		status.Conditions = withKubeVirtCondition(status.Conditions, kind, v, now)
	}
	set(virtv1.KubeVirtConditionCreated, verdict{sum.Complete.Yes, createdReason(sum), createdMessage(sum)})
	set(virtv1.KubeVirtConditionAvailable, inFieldsWords(sum.Available))
	set(virtv1.KubeVirtConditionProgressing, inFieldsWords(sum.Progressing))
	set(virtv1.KubeVirtConditionDegraded, inFieldsWords(sum.Degraded))
	status.Phase = virtv1.KubeVirtPhaseDeploying
	if sum.Available.Yes && sum.Complete.Yes {
		status.Phase = virtv1.KubeVirtPhaseDeployed
		status.ObservedKubeVirtVersion = options.Version
		status.ObservedDeploymentID = options.Version
	}
	return status
}

func createdReason(sum summary) string {
	if sum.Complete.Yes {
		return "AllResourcesCreated"
	}
	return sum.Complete.Reason
}

func createdMessage(sum summary) string {
	if sum.Complete.Yes {
		return "All resources were created."
	}
	return sum.Complete.Message
}

// inFieldsWords says what is well in the words that the field's own operator uses.
func inFieldsWords(v verdict) verdict {
	if v.Reason == ReasonCompleted {
		v.Reason, v.Message = "AllComponentsReady", messageNoComplain
	}
	return v
}

func withKubeVirtCondition(all []virtv1.KubeVirtCondition, kind virtv1.KubeVirtConditionType, v verdict, now metav1.Time) []virtv1.KubeVirtCondition {
	wanted := virtv1.KubeVirtCondition{
		Type: kind, Status: corev1.ConditionStatus(asStatus(v.Yes)), Reason: v.Reason, Message: v.Message, LastTransitionTime: now,
	}
	for i := range all {
		if all[i].Type != kind {
			continue
		}
		if all[i].Status == wanted.Status {
			wanted.LastTransitionTime = all[i].LastTransitionTime
		}
		all[i] = wanted
		return all
	}
	return append(all, wanted)
}

// cdiStatus returns the status of the CDI object, in the field's words.
func cdiStatus(cdi *cdiv1.CDI, sum summary, version string, now metav1.Time) cdiv1.CDIStatus {
	status := *cdi.Status.DeepCopy()
	status.OperatorVersion = version
	status.TargetVersion = version
	set := func(kind conditionsv1.ConditionType, v verdict) {
		status.Conditions = withCDICondition(status.Conditions, kind, v, now)
	}
	set(conditionsv1.ConditionAvailable, inCDIsWords(sum.Available))
	set(conditionsv1.ConditionProgressing, inCDIsWords(sum.Progressing))
	set(conditionsv1.ConditionDegraded, inCDIsWords(sum.Degraded))
	status.Phase = sdkapi.PhaseDeploying
	if sum.Available.Yes && sum.Complete.Yes {
		status.Phase = sdkapi.PhaseDeployed
		status.ObservedVersion = version
	}
	return status
}

func inCDIsWords(v verdict) verdict {
	if v.Reason == ReasonCompleted {
		v.Reason, v.Message = "DeployCompleted", "Deployment Completed"
	}
	return v
}

func withCDICondition(all []conditionsv1.Condition, kind conditionsv1.ConditionType, v verdict, now metav1.Time) []conditionsv1.Condition {
	wanted := conditionsv1.Condition{
		Type: kind, Status: corev1.ConditionStatus(asStatus(v.Yes)), Reason: v.Reason, Message: v.Message,
		LastTransitionTime: now, LastHeartbeatTime: now,
	}
	for i := range all {
		if all[i].Type != kind {
			continue
		}
		if all[i].Status == wanted.Status && all[i].Reason == wanted.Reason && all[i].Message == wanted.Message {
			return all // a heartbeat alone is not worth a write
		}
		if all[i].Status == wanted.Status {
			wanted.LastTransitionTime = all[i].LastTransitionTime
		}
		all[i] = wanted
		return all
	}
	return append(all, wanted)
}

func asStatus(yes bool) metav1.ConditionStatus {
	if yes {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
