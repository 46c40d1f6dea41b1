package virtualmachine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeStatus writes the VM's status when it has changed: what is requested first, so that
// who reads the rest reads it, too. A pass that the cache has shown an older VM writes nothing: what the pass before has found, such as
// the instance type that a disk's label named at the start, would be lost with it.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	if err := r.writeRequests(ctx, s); err != nil {
		return err
	}
	wanted := statusOf(s)
	if equality.Semantic.DeepEqual(wanted, owned(&s.vm.Status)) {
		return nil
	}
	err := apply.StatusAsRead(ctx, r.Client, s.vm, names.ManagerController, wanted)
	if apierrors.IsNotFound(err) {
		return nil // gone since it was read
	}
	return err
}

// owned returns the fields of status that this controller applies.
func owned(status *virtv1.VirtualMachineStatus) virtv1.VirtualMachineStatus {
	return virtv1.VirtualMachineStatus{
		Created:            status.Created,
		Ready:              status.Ready,
		PrintableStatus:    status.PrintableStatus,
		Conditions:         status.Conditions,
		StartFailure:       status.StartFailure,
		ObservedGeneration: status.ObservedGeneration,
		DesiredGeneration:  status.DesiredGeneration,
		RunStrategy:        status.RunStrategy,
		InstancetypeRef:    status.InstancetypeRef,
		PreferenceRef:      status.PreferenceRef,
		VolumeUpdateState:  status.VolumeUpdateState,

		ChangedBlockTracking: status.ChangedBlockTracking,
	}
}

// statusOf computes the VM's status from what the pass knows.
func statusOf(s *scope) virtv1.VirtualMachineStatus {
	status := virtv1.VirtualMachineStatus{
		Created:           s.vmi != nil,
		PrintableStatus:   printable(s),
		Conditions:        conditions(s),
		StartFailure:      s.startFailure,
		RunStrategy:       recordedStrategy(s),
		DesiredGeneration: s.vm.Generation,
		InstancetypeRef:   refOf(s.vm.Spec.Instancetype != nil, s.instancetype),
		PreferenceRef:     refOf(s.vm.Spec.Preference != nil, s.preference),
		VolumeUpdateState: volumeUpdate(s),

		ChangedBlockTracking: trackingStatus(s),
	}
	status.ObservedGeneration = observed(s)
	if s.vmi != nil {
		ready := vmiCondition(s.vmi, virtv1.VirtualMachineInstanceReady)
		status.Ready = ready != nil && ready.Status == corev1.ConditionTrue && s.vmi.IsRunning()
	}
	return status
}

func refOf(named bool, ref instancetype.Reference) *virtv1.InstancetypeStatusRef {
	if !named || ref.Name == "" {
		return nil
	}
	status := &virtv1.InstancetypeStatusRef{Name: ref.Name, Kind: ref.Kind, InferFromVolume: ref.InferredFrom}
	if ref.Revision != "" {
		status.ControllerRevisionRef = &virtv1.ControllerRevisionRef{Name: ref.Revision}
	}
	return status
}

// observed is the generation of the VM that its VMI runs.
func observed(s *scope) int64 {
	if s.vmi == nil || s.restart == "" {
		return s.vm.Generation
	}
	generation, err := strconv.ParseInt(s.vmi.Annotations[virtv1.VirtualMachineGenerationAnnotation], 10, 64)
	if err != nil {
		return s.vm.Generation
	}
	return generation
}

// Outdated says whether vmi was made from another template, instance type or preference
// than vm names now, and has not taken up the difference since.
func Outdated(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) bool {
	made, known := vmi.Annotations[AnnotationTemplate]
	digest, err := templateDigest(vm)
	return known && err == nil && made != digest
}

// Reasons of the VM's own conditions, in the field's words.
const (
	reasonNoVMI          = "VMINotExists"
	reasonGuestNotUp     = virtv1.GuestNotRunningReason
	reasonRestart        = "RestartRequired"
	messageNoVMI         = "VMI does not exist"
	messageGuestNotUp    = "Guest VM is not reported as running"
	messageRestartNeeded = "a non-live-updatable field was changed in the template spec"
)

// conditions are the VM's own and copies of its VMI's.
func conditions(s *scope) []virtv1.VirtualMachineCondition {
	var all []virtv1.VirtualMachineCondition
	add := func(c virtv1.VirtualMachineCondition) {
		all = append(all, keepTransition(c, s))
	}
	add(readiness(s))
	if c := failureCondition(s); c != nil {
		add(*c)
	}
	if c := renameCondition(s); c != nil {
		add(*c)
	}
	for _, c := range migrationConditions(s) {
		add(c)
	}
	if s.restart != "" {
		add(virtv1.VirtualMachineCondition{
			Type: virtv1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue, Reason: reasonRestart, Message: s.restart,
		})
	}
	if s.vmi == nil {
		for _, c := range foreseenConditions(s) {
			add(c)
		}
		return all
	}
	for _, c := range s.vmi.Status.Conditions {
		if c.Type == virtv1.VirtualMachineInstanceReady {
			continue
		}
		all = append(all, virtv1.VirtualMachineCondition{
			Type: virtv1.VirtualMachineConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message,
			LastTransitionTime: c.LastTransitionTime,
		})
	}
	return all
}

// failureCondition says why the pass failed, or would if the VM were started; nil when neither is so.
func failureCondition(s *scope) *virtv1.VirtualMachineCondition {
	c := &virtv1.VirtualMachineCondition{Type: virtv1.VirtualMachineFailure, Status: corev1.ConditionTrue, Reason: reasonCreateFailed}
	switch {
	case s.failure != nil:
		c.Message = s.failure.Error()
	case s.unstartable != nil:
		c.Message = "it cannot be started: " + s.unstartable.Error()
	default:
		return nil
	}
	return c
}

func readiness(s *scope) virtv1.VirtualMachineCondition {
	c := virtv1.VirtualMachineCondition{Type: virtv1.VirtualMachineReady, Status: corev1.ConditionFalse}
	if s.vmi == nil {
		c.Reason, c.Message = reasonNoVMI, messageNoVMI
		if crashLooping(s) {
			c.Message = fmt.Sprintf("%s: its last %d starts failed; it is started again at %s", messageNoVMI, s.startFailure.ConsecutiveFailCount, retryTime(s.startFailure))
			if why := lastFailure(s); why != "" {
				c.Message += ". " + why
			}
		}
		return c
	}
	ready := vmiCondition(s.vmi, virtv1.VirtualMachineInstanceReady)
	if ready == nil {
		c.Reason, c.Message = reasonGuestNotUp, messageGuestNotUp
		return c
	}
	c.Status, c.Reason, c.Message, c.LastTransitionTime = ready.Status, ready.Reason, ready.Message, ready.LastTransitionTime
	return c
}

// lastFailurePrefix begins what a VM in its back-off tells of its last VMI.
const lastFailurePrefix = "The last one: "

// lastFailure is what the VM said of its last VMI, which is gone.
func lastFailure(s *scope) string {
	for _, old := range s.vm.Status.Conditions {
		if old.Type != virtv1.VirtualMachineReady {
			continue
		}
		if old.Reason != reasonNoVMI && old.Status == corev1.ConditionFalse {
			return strings.TrimSuffix(fmt.Sprintf("%s%s: %s", lastFailurePrefix, old.Reason, old.Message), ": ")
		}
		if at := strings.Index(old.Message, lastFailurePrefix); at >= 0 {
			return old.Message[at:]
		}
	}
	return ""
}

func retryTime(failure *virtv1.VirtualMachineStartFailure) string {
	if failure.RetryAfterTimestamp == nil {
		return "once"
	}
	return failure.RetryAfterTimestamp.UTC().Format(time.RFC3339)
}

// keepTransition gives c the time of its last change.
func keepTransition(c virtv1.VirtualMachineCondition, s *scope) virtv1.VirtualMachineCondition {
	for _, old := range s.vm.Status.Conditions {
		if old.Type == c.Type && old.Status == c.Status && c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	if c.LastTransitionTime.IsZero() {
		c.LastTransitionTime = metav1.NewTime(s.now)
	}
	return c
}

func vmiCondition(vmi *virtv1.VirtualMachineInstance, kind virtv1.VirtualMachineInstanceConditionType) *virtv1.VirtualMachineInstanceCondition {
	for i := range vmi.Status.Conditions {
		if vmi.Status.Conditions[i].Type == kind {
			return &vmi.Status.Conditions[i]
		}
	}
	return nil
}
