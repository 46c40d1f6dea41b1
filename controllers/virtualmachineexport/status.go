package virtualmachineexport

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// writeStatus writes what the pass has found, where that is news.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	wanted := newStatus(s)
	if s.export.Status != nil && equality.Semantic.DeepEqual(wanted, *s.export.Status) {
		return nil
	}
	err := apply.Status(ctx, r.Client, s.export, names.ManagerController, wanted)
	if apierrors.IsNotFound(err) {
		return nil // it goes
	}
	if err != nil {
		return fmt.Errorf("writing the status of VirtualMachineExport %s: %w", s.export.Name, err)
	}
	return nil
}

// newStatus computes the export's status.
func newStatus(s *scope) exportv1.VirtualMachineExportStatus {
	status := exportv1.VirtualMachineExportStatus{
		Phase: s.phase(), TokenSecretRef: new(tokenSecret(s.export)), ServiceName: s.serverName(),
		TTLExpirationTime: new(metav1.NewTime(vmexport.Expiry(s.export)).Rfc3339Copy()),
	}
	if s.machine != "" {
		status.VirtualMachineName = &s.machine
	}
	if status.Phase == exportv1.Ready {
		status.Links = links(s)
	}
	ready := s.readyCondition()
	status.Conditions = append(status.Conditions, ready)
	if volumes, known := s.volumesCondition(); known {
		status.Conditions = append(status.Conditions, volumes)
	}
	for i := range status.Conditions {
		keepTime(s, &status.Conditions[i])
	}
	return status
}

// phase is how far the export is.
func (s *scope) phase() exportv1.VirtualMachineExportPhase {
	switch {
	case s.lack != nil && s.lack.empty:
		return exportv1.Skipped
	case s.lack != nil || s.problem != nil || s.pod == nil || s.pod.DeletionTimestamp != nil:
		return exportv1.Pending
	case s.pod.Status.Phase == corev1.PodSucceeded:
		return exportv1.Terminated
	case isReady(s.pod):
		return exportv1.Ready
	}
	return exportv1.Pending
}

// links are where the volumes are: in the cluster, and from outside where virt-exportproxy is published.
func links(s *scope) *exportv1.VirtualMachineExportLinks {
	authority := strings.TrimSpace(s.pod.Annotations[annotationAuthority])
	all := &exportv1.VirtualMachineExportLinks{
		Internal: link(s, authority, vmexport.InternalBase(s.export.Namespace, s.export.Name), vmexport.PathManifest, vmexport.PathSecret),
	}
	switch {
	case s.published.Unknown:
		all.External = s.published.Former.DeepCopy()
	case s.published.Host != "":
		base := vmexport.ExternalBase(s.published.Host, s.export.Namespace, s.export.Name)
		all.External = link(s, s.published.Certificate, base, vmexport.PathExternalManifest, vmexport.PathExternalSecret)
	}
	return all
}

// link is where the volumes are below base, and at which paths there the definition of the VM is, and its Secret.
func link(s *scope, certificate, base, manifest, secret string) *exportv1.VirtualMachineExportLink {
	link := &exportv1.VirtualMachineExportLink{Cert: certificate}
	for _, volume := range s.volumes {
		one := exportv1.VirtualMachineExportVolume{Name: volume.Name}
		for _, format := range volume.formats() {
			one.Formats = append(one.Formats, exportv1.VirtualMachineExportVolumeFormat{Format: format, Url: vmexport.URL(base, volume.Name, format)})
		}
		link.Volumes = append(link.Volumes, one)
	}
	if s.vm != nil {
		link.Manifests = []exportv1.VirtualMachineExportManifest{
			{Type: exportv1.AllManifests, Url: base + manifest}, {Type: exportv1.AuthHeader, Url: base + secret},
		}
	}
	return link
}

// readyCondition says whether the volumes can be downloaded, or what is waited for.
func (s *scope) readyCondition() exportv1.Condition {
	no := exportv1.Condition{Type: exportv1.ConditionReady, Status: corev1.ConditionFalse}
	switch phase := s.phase(); {
	case s.problem != nil:
		no.Reason, no.Message = reasonUnknown, s.problem.message
	case s.lack != nil:
		no.Reason, no.Message = s.lack.reason, s.lack.message
	case phase == exportv1.Terminated:
		no.Reason = reasonPodCompleted
	case phase == exportv1.Ready:
		return exportv1.Condition{Type: exportv1.ConditionReady, Status: corev1.ConditionTrue, Reason: reasonPodReady}
	case s.pod == nil:
		no.Reason = reasonInitializing
	default:
		no.Reason, no.Message = reasonPodPending, pendingMessage(s.pod)
	}
	return no
}

// pendingMessage is why a pod does not run, as far as the pod says it.
func pendingMessage(pod *corev1.Pod) string {
	if hasFailed(pod) {
		return strings.TrimSpace("it failed, and is made anew: " + pod.Status.Reason + " " + pod.Status.Message)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		if waiting := container.State.Waiting; waiting != nil && waiting.Message != "" {
			return waiting.Message
		}
	}
	return ""
}

// volumesCondition says how the claims are, as far as they are known.
func (s *scope) volumesCondition() (exportv1.Condition, bool) {
	condition := exportv1.Condition{Type: exportv1.ConditionPVC, Status: corev1.ConditionFalse}
	bound := !slices.ContainsFunc(s.volumes, func(v Volume) bool { return !v.Bound })
	if s.export.Spec.Source.Kind == KindSnapshot {
		condition.Type = exportv1.ConditionVolumesCreated
		switch {
		case s.lack != nil || s.problem != nil:
			condition.Reason = reasonNotAllCreated
		case !bound:
			condition.Reason, condition.Message = reasonNotAllReady, "Not all PVCs are ready"
		default:
			condition.Status, condition.Reason = corev1.ConditionTrue, reasonAllReady
		}
		return condition, true
	}
	switch {
	case s.lack != nil && s.lack.reason != reasonInUse:
		condition.Reason, condition.Message = s.lack.reason, s.lack.message
	case len(s.volumes) == 0:
		return condition, false // nothing was looked at
	case !bound:
		condition.Reason = reasonClaimPending
	default:
		condition.Status, condition.Reason = corev1.ConditionTrue, reasonClaimBound
	}
	return condition, true
}

// keepTime gives a condition the time of its last change.
func keepTime(s *scope, condition *exportv1.Condition) {
	for _, before := range status(s.export).Conditions {
		if before.Type != condition.Type {
			continue
		}
		if before.Status == condition.Status && before.Reason == condition.Reason && before.Message == condition.Message {
			condition.LastProbeTime, condition.LastTransitionTime = before.LastProbeTime, before.LastTransitionTime
			return
		}
		if before.Status == condition.Status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
	}
	now := metav1.NewTime(s.now).Rfc3339Copy()
	condition.LastProbeTime = now
	if condition.LastTransitionTime.IsZero() {
		condition.LastTransitionTime = now
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
