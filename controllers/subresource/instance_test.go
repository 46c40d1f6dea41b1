package subresource

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// vmiIn is a VMI in phase, with conditions that hold.
func vmiIn(phase virtv1.VirtualMachineInstancePhase, conditions ...virtv1.VirtualMachineInstanceConditionType) *virtv1.VirtualMachineInstance {
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Name, vmi.Status.Phase = "web", phase
	for _, kind := range conditions {
		vmi.Status.Conditions = append(vmi.Status.Conditions, virtv1.VirtualMachineInstanceCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	return vmi
}

func withSlots(vmi *virtv1.VirtualMachineInstance) *virtv1.VirtualMachineInstance {
	vmi.Spec.Domain.Devices.ClientPassthrough = &virtv1.ClientPassthroughDevices{}
	return vmi
}

func TestWhatAVMICannotDoIsRefusedInTheFieldsWords(t *testing.T) {
	const agent, paused = virtv1.VirtualMachineInstanceAgentConnected, virtv1.VirtualMachineInstancePaused
	without := func(change func(*virtv1.VirtualMachineInstance)) *virtv1.VirtualMachineInstance {
		vmi := vmiIn(virtv1.Running)
		change(vmi)
		return vmi
	}
	for name, c := range map[string]struct {
		check check
		vmi   *virtv1.VirtualMachineInstance
		code  int32 // 0 for allowed
		words string
	}{
		"pause what runs":                  {canPause, vmiIn(virtv1.Running), 0, ""},
		"pause what is starting":           {canPause, vmiIn(virtv1.Scheduled), http.StatusConflict, "VM is not running"},
		"pause twice":                      {canPause, vmiIn(virtv1.Running, paused), http.StatusConflict, "VMI is already paused"},
		"pause what is probed":             {canPause, without(func(v *virtv1.VirtualMachineInstance) { v.Spec.LivenessProbe = &virtv1.Probe{} }), http.StatusForbidden, "LivenessProbe"},
		"unpause what is paused":           {canUnpause, vmiIn(virtv1.Running, paused), 0, ""},
		"unpause what is not":              {canUnpause, vmiIn(virtv1.Running), http.StatusConflict, "VMI is not paused"},
		"unpause what has ended":           {canUnpause, vmiIn(virtv1.Succeeded, paused), http.StatusConflict, "VMI is not running"},
		"reset what has no guest yet":      {canReset, vmiIn(virtv1.Scheduling), http.StatusBadRequest, "Failed to reset non-running VMI with phase Scheduling: Unable to connect"},
		"reset what is about to run":       {canReset, vmiIn(virtv1.Scheduled), 0, ""},
		"reboot by ACPI":                   {canSoftReboot, vmiIn(virtv1.Running), 0, ""},
		"reboot what is paused":            {canSoftReboot, vmiIn(virtv1.Running, paused), http.StatusConflict, "VMI is paused"},
		"reboot with neither":              {canSoftReboot, withoutACPI(vmiIn(virtv1.Running)), http.StatusConflict, "neither have the agent connected nor the ACPI feature enabled"},
		"reboot by the agent":              {canSoftReboot, withoutACPI(vmiIn(virtv1.Running, agent)), 0, ""},
		"freeze what is not running":       {running(vmNotRunning), vmiIn(virtv1.Pending), http.StatusConflict, "VM is not running"},
		"ask the agent":                    {hasAgent, vmiIn(virtv1.Running, agent), 0, ""},
		"ask without an agent":             {hasAgent, vmiIn(virtv1.Running), http.StatusConflict, "VMI does not have guest agent connected"},
		"console of what failed":           {hasConsole, vmiIn(virtv1.Failed), http.StatusConflict, "VMI is in failed status"},
		"console of what is not there":     {hasConsole, vmiIn(virtv1.Scheduled), http.StatusBadRequest, "VMI is not running"},
		"console of a guest without one":   {hasConsole, without(func(v *virtv1.VirtualMachineInstance) { v.Spec.Domain.Devices.AutoattachSerialConsole = new(false) }), http.StatusBadRequest, "No serial consoles are present."},
		"screen of a guest without one":    {hasGraphics, without(func(v *virtv1.VirtualMachineInstance) { v.Spec.Domain.Devices.AutoattachGraphicsDevice = new(false) }), http.StatusBadRequest, "No graphics devices are present."},
		"screen of what is not there":      {hasGraphics, vmiIn(virtv1.Scheduling), http.StatusBadRequest, "VMI is not running"},
		"a USB device without slots":       {hasUSBSlots, vmiIn(virtv1.Running), http.StatusConflict, "Not configured with USB Redirection"},
		"a USB device of what starts":      {hasUSBSlots, withSlots(vmiIn(virtv1.Scheduled)), http.StatusBadRequest, "VMI is not running"},
		"a USB device":                     {hasUSBSlots, withSlots(vmiIn(virtv1.Running)), 0, ""},
		"a condition that does not hold":   {canUnpause, notHolding(vmiIn(virtv1.Running, paused)), http.StatusConflict, "VMI is not paused"},
		"nobody has what is not on a node": {connectable, vmiIn(virtv1.Pending), http.StatusBadRequest, "because phase is Pending instead of Running or Scheduled"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.check(c.vmi)
			if c.code == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || statusOf(err).Code != c.code || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, want %d with %q", err, c.code, c.words)
			}
		})
	}
}

func withoutACPI(vmi *virtv1.VirtualMachineInstance) *virtv1.VirtualMachineInstance {
	vmi.Spec.Domain.Features = &virtv1.Features{ACPI: virtv1.FeatureState{Enabled: new(false)}}
	return vmi
}

func notHolding(vmi *virtv1.VirtualMachineInstance) *virtv1.VirtualMachineInstance {
	for i := range vmi.Status.Conditions {
		vmi.Status.Conditions[i].Status = corev1.ConditionFalse
	}
	return vmi
}
