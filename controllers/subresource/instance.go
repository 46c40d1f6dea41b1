package subresource

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// check says why something cannot be asked of a VMI as it is.
type check func(*virtv1.VirtualMachineInstance) error

func conflicting(vmi *virtv1.VirtualMachineInstance, message string) error {
	return conflict(kindVMI, vmi.Name, "%s", message)
}

// running refuses with message what only a VMI can do that runs.
func running(message string) check {
	return func(vmi *virtv1.VirtualMachineInstance) error {
		if vmi.Status.Phase != virtv1.Running {
			return conflicting(vmi, message)
		}
		return nil
	}
}

// is says whether a condition of vmi holds.
func is(vmi *virtv1.VirtualMachineInstance, kind virtv1.VirtualMachineInstanceConditionType) bool {
	return slices.ContainsFunc(vmi.Status.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

func canPause(vmi *virtv1.VirtualMachineInstance) error {
	switch {
	case vmi.Status.Phase != virtv1.Running:
		return conflicting(vmi, vmNotRunning)
	case vmi.Spec.LivenessProbe != nil:
		return refuse(apierrors.NewForbidden(virtv1.Resource(kindVMI), vmi.Name, fmt.Errorf("Pausing VMIs with LivenessProbe is currently not supported"))) //nolint:staticcheck // the field's own words
	case is(vmi, virtv1.VirtualMachineInstancePaused):
		return conflicting(vmi, "VMI is already paused")
	}
	return nil
}

func canUnpause(vmi *virtv1.VirtualMachineInstance) error {
	switch {
	case vmi.Status.Phase != virtv1.Running:
		return conflicting(vmi, vmiNotRunning)
	case !is(vmi, virtv1.VirtualMachineInstancePaused):
		return conflicting(vmi, vmiNotPaused)
	}
	return nil
}

func canReset(vmi *virtv1.VirtualMachineInstance) error {
	if err := connectable(vmi); err != nil {
		return badRequest("Failed to reset non-running VMI with phase %s: %v", vmi.Status.Phase, err)
	}
	return nil
}

func canSoftReboot(vmi *virtv1.VirtualMachineInstance) error {
	switch {
	case vmi.Status.Phase != virtv1.Running:
		return conflicting(vmi, vmNotRunning)
	case is(vmi, virtv1.VirtualMachineInstancePaused):
		return conflicting(vmi, vmiPaused)
	case !is(vmi, virtv1.VirtualMachineInstanceAgentConnected) && acpiOff(vmi.Spec.Domain.Features):
		return conflicting(vmi, "VMI neither have the agent connected nor the ACPI feature enabled")
	}
	return nil
}

func acpiOff(features *virtv1.Features) bool {
	return features != nil && features.ACPI.Enabled != nil && !*features.ACPI.Enabled
}

func hasAgent(vmi *virtv1.VirtualMachineInstance) error {
	switch {
	case vmi.Status.Phase != virtv1.Running:
		return conflicting(vmi, vmiNotRunning)
	case !is(vmi, virtv1.VirtualMachineInstanceAgentConnected):
		return conflicting(vmi, agentMissing)
	}
	return nil
}

func hasConsole(vmi *virtv1.VirtualMachineInstance) error {
	attached := vmi.Spec.Domain.Devices.AutoattachSerialConsole
	switch {
	case attached != nil && !*attached:
		return badRequest("No serial consoles are present.")
	case vmi.Status.Phase == virtv1.Failed:
		return conflicting(vmi, "VMI is in failed status")
	case !vmi.IsRunning():
		return badRequest(vmiNotRunning)
	}
	return nil
}

func hasGraphics(vmi *virtv1.VirtualMachineInstance) error {
	attached := vmi.Spec.Domain.Devices.AutoattachGraphicsDevice
	switch {
	case attached != nil && !*attached:
		return badRequest("No graphics devices are present.")
	case !vmi.IsRunning():
		return badRequest(vmiNotRunning)
	}
	return nil
}

func hasUSBSlots(vmi *virtv1.VirtualMachineInstance) error {
	switch {
	case vmi.Spec.Domain.Devices.ClientPassthrough == nil:
		return conflicting(vmi, "Not configured with USB Redirection")
	case !vmi.IsRunning():
		return badRequest(vmiNotRunning)
	}
	return nil
}

func hasVSOCK(vmi *virtv1.VirtualMachineInstance) error {
	attached := vmi.Spec.Domain.Devices.AutoattachVSOCK
	switch {
	case attached == nil || !*attached:
		return badRequest("VSOCK is not attached.")
	case !vmi.IsRunning():
		return badRequest(vmiNotRunning)
	}
	return nil
}

// connectable refuses a VMI that no virt-handler has.
func connectable(vmi *virtv1.VirtualMachineInstance) error {
	if vmi.IsRunning() || vmi.IsScheduled() {
		return nil
	}
	return badRequest(unconnectable, vmi.Status.Phase, virtv1.Running, virtv1.Scheduled)
}

// finder finds the VMI that a request is about.
type finder func(*Server, context.Context, client.ObjectKey) (*virtv1.VirtualMachineInstance, error)

func (s *Server) instance(ctx context.Context, key client.ObjectKey) (*virtv1.VirtualMachineInstance, error) {
	vmi, err := s.instanceIfAny(ctx, key)
	if err == nil && vmi == nil {
		err = refuse(apierrors.NewNotFound(virtv1.Resource(kindVMI), key.Name))
	}
	return vmi, err
}

// instanceOfVM is the VMI that the VM of key's name runs as.
func (s *Server) instanceOfVM(ctx context.Context, key client.ObjectKey) (*virtv1.VirtualMachineInstance, error) {
	vm, err := s.virtualMachine(ctx, key)
	if err != nil {
		return nil, err
	}
	if !vm.Status.Created {
		return nil, conflict(kindVM, vm.Name, "VMI is not started")
	}
	vmi, err := s.instance(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, owner := range vmi.OwnerReferences {
		if owner.UID == vm.UID {
			return vmi, nil
		}
	}
	return nil, fmt.Errorf("unable to retrieve vmi [%s] for vm: it is another's", key.Name)
}

// launcherPod is the pod of vmi on its node, nil when there is none.
func (s *Server) launcherPod(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (*corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := s.live.List(ctx, pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{virtv1.CreatedByLabel: string(vmi.UID)})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of VirtualMachineInstance %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if metav1.IsControlledBy(pod, vmi) && pod.Spec.NodeName == vmi.Status.NodeName && pod.DeletionTimestamp == nil {
			return pod, nil
		}
	}
	return nil, nil
}

// handedOn hands a request on to virt-handler's verb, unless the VMI fails check.
func handedOn(verb string, check check) answer {
	return func(s *Server, w http.ResponseWriter, r *http.Request) error {
		vmi, err := s.checked(r, check)
		if err != nil {
			return err
		}
		return s.handOn(w, r, vmi, verb)
	}
}

// changeable is handedOn for what a client can also only try.
func changeable(verb string, check check) answer {
	return func(s *Server, w http.ResponseWriter, r *http.Request) error {
		options := &virtv1.PauseOptions{} // of UnpauseOptions the same
		if err := decode(r, options); err != nil {
			return err
		}
		for _, directive := range options.DryRun {
			if directive != metav1.DryRunAll {
				return badRequest("invalid dryRun directive %q: use %s", directive, metav1.DryRunAll)
			}
		}
		vmi, err := s.checked(r, check)
		if err != nil || len(options.DryRun) > 0 {
			return err
		}
		r.Body, r.ContentLength = http.NoBody, 0 // it was read, and virt-handler asks for none
		return s.handOn(w, r, vmi, verb)
	}
}

// checked is the VMI that r is about, which passes check and has a virt-handler.
func (s *Server) checked(r *http.Request, check check) (*virtv1.VirtualMachineInstance, error) {
	vmi, err := s.instance(r.Context(), key(r))
	if err != nil {
		return nil, err
	}
	if err := check(vmi); err != nil {
		return nil, err
	}
	return vmi, connectable(vmi)
}
