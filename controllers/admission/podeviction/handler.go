// Package podeviction answers those who evict pods of virtual machines, as a drain of a node does. A
// guest that is to live on has its eviction denied with 429, by which clients know to try it again.
package podeviction

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/controllers/eviction"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
)

// Path is where the webhook is served.
const Path = "/launcher-eviction-validate"

// Words that the field's clients know, such as the descheduler.
const (
	notMigratable = "VMI %s is configured with an eviction strategy but is not live-migratable"
	triggered     = "Eviction triggered evacuation of VMI %q"
	inProgress    = "Evacuation in progress: " + triggered
	holdsVolume   = "cannot evict hotplug pod: %s associated with running vmi: %s in namespace %s"
)

// advice is what can be done about a guest that cannot migrate.
const advice = "; there is no live migration yet: stop the virtual machine, or restart it with the evictionStrategy LiveMigrateIfPossible or None, by which it is shut down"

// reasonMigrated is the field's reason for events about migrations.
const reasonMigrated = "Migrated"

// Webhook is the webhook for evictions of pods by the names that launcher and attachment pods have.
type Webhook struct {
	// Reader reads what there is now; Client marks VMIs.
	Reader client.Reader
	Client client.Client
	Events events.EventRecorder
}

// Handle lets the eviction pass that request asks for, or denies it.
func (h *Webhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	evicted := &corev1.Pod{}
	err := h.Reader.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: request.Name}, evicted)
	if apierrors.IsNotFound(err) {
		return admission.Allowed("")
	}
	if err != nil {
		return denied("reading pod %s/%s: %v", request.Namespace, request.Name, err)
	}
	vmi, err := h.guestOf(ctx, evicted)
	if err != nil {
		return denied("kubevirt failed getting the vmi: %v", err)
	}
	switch {
	case vmi == nil:
		return admission.Allowed("")
	case evicted.Labels[virtv1.AppLabel] == names.AppAttachment:
		return denied(holdsVolume, evicted.Name, vmi.Name, vmi.Namespace)
	case evicted.Labels[virtv1.AppLabel] == pod.AppLauncher:
		return h.launcher(ctx, &request, evicted, vmi)
	}
	return admission.Allowed("")
}

// guestOf returns the VMI that evicted is for, or nil when an eviction does no harm to one: it is
// not there, has ended or is to end, or the pod itself has.
func (h *Webhook) guestOf(ctx context.Context, evicted *corev1.Pod) (*virtv1.VirtualMachineInstance, error) {
	owner := metav1.GetControllerOf(evicted)
	if owner == nil || owner.Kind != virtv1.VirtualMachineInstanceGroupVersionKind.Kind || ended(evicted) {
		return nil, nil
	}
	vmi := &virtv1.VirtualMachineInstance{}
	err := h.Reader.Get(ctx, client.ObjectKey{Namespace: evicted.Namespace, Name: owner.Name}, vmi)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading VMI %s/%s: %w", evicted.Namespace, owner.Name, err)
	}
	if vmi.UID != owner.UID || vmi.DeletionTimestamp != nil || vmi.IsFinal() {
		return nil, nil
	}
	return vmi, nil
}

func ended(evicted *corev1.Pod) bool {
	return evicted.DeletionTimestamp != nil || evicted.Status.Phase == corev1.PodSucceeded || evicted.Status.Phase == corev1.PodFailed
}

// launcher answers for the pod that the guest is in.
func (h *Webhook) launcher(ctx context.Context, request *admission.Request, evicted *corev1.Pod, vmi *virtv1.VirtualMachineInstance) admission.Response {
	strategy, err := eviction.Strategy(ctx, h.Reader, vmi)
	switch {
	case err != nil:
		return denied("%v", err)
	case !eviction.Keeps(strategy, vmi):
		return admission.Allowed("")
	case strategy == virtv1.EvictionStrategyLiveMigrate && !vmi.IsMigratable():
		if !dryRun(request) {
			h.Events.Eventf(vmi, evicted, corev1.EventTypeWarning, reasonMigrated, "Evict", "EvictionStrategy is set but vmi is not migratable%s", advice)
		}
		return denied(notMigratable+advice, vmi.Name)
	}
	name := vmi.Namespace + "/" + vmi.Name
	if vmi.IsMarkedForEviction() {
		return denied(inProgress, name)
	}
	if err := h.mark(ctx, request, vmi, evicted.Spec.NodeName); err != nil {
		return denied("kubevirt failed marking the vmi for eviction: %v", err)
	}
	return denied(triggered, name)
}

// mark says in the status of vmi, and of no later one of its name, from which node it is to go, for
// who moves it.
func (h *Webhook) mark(ctx context.Context, request *admission.Request, vmi *virtv1.VirtualMachineInstance, node string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": vmi.UID},
		"status":   map[string]any{"evacuationNodeName": node},
	})
	if err != nil {
		return fmt.Errorf("encoding the node: %w", err)
	}
	options := &client.PatchOptions{FieldManager: names.ManagerAPI}
	if dryRun(request) {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if err := h.Client.Patch(ctx, vmi, client.RawPatch(types.MergePatchType, patch), options); err != nil {
		return fmt.Errorf("patching VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return nil
}

// dryRun says whether the eviction is only tried, which clients say in one of two places.
func dryRun(request *admission.Request) bool {
	if request.DryRun != nil && *request.DryRun {
		return true
	}
	asked := &policyv1.Eviction{}
	if err := json.Unmarshal(request.Object.Raw, asked); err != nil || asked.DeleteOptions == nil {
		return false
	}
	return slices.Contains(asked.DeleteOptions.DryRun, metav1.DryRunAll)
}

// denied is the answer by which drains wait and try again.
func denied(format string, args ...any) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Message: fmt.Sprintf(format, args...),
	}}}
}
