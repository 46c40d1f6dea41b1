//go:build integration

package controllers

import (
	"encoding/json"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// request is virt-api, which writes a VM's requests as one that found none.
func (c *cluster) request(t *testing.T, key client.ObjectKey, requests ...virtv1.VirtualMachineStateChangeRequest) {
	t.Helper()
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/status/stateChangeRequests", "value": nil},
		{"op": "add", "path": "/status/stateChangeRequests", "value": requests},
	})
	must(t, err)
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	must(t, c.Status().Patch(t.Context(), vm, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(names.ManagerAPI)))
}

func startRequest(data map[string]string) virtv1.VirtualMachineStateChangeRequest {
	return virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StartRequest, Data: data}
}

func stopRequest(vmi *virtv1.VirtualMachineInstance) virtv1.VirtualMachineStateChangeRequest {
	return virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StopRequest, UID: &vmi.UID}
}

// met waits until nothing of the VM's requests is left, so that virt-api takes the next.
func (c *cluster) met(t *testing.T, key client.ObjectKey) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() ([]virtv1.VirtualMachineStateChangeRequest, error) {
		vm := &virtv1.VirtualMachine{}
		err := c.Get(t.Context(), key, vm)
		return vm.Status.StateChangeRequests, err
	}, bound, "50ms").Should(gomega.BeEmpty(), "requests of VM %s", key)
}

// beingStopped waits until virt-controller has deleted the VMI.
func (c *cluster) beingStopped(t *testing.T, key client.ObjectKey) {
	t.Helper()
	c.vmiSays(t, key, "deleted", func(vmi *virtv1.VirtualMachineInstance) string {
		if vmi.DeletionTimestamp == nil {
			return "there"
		}
		return "deleted"
	})
}

func TestAManualVMRunsByRequestsAlone(t *testing.T) {
	c := start(t)
	vm := newVM(c.namespace(t), "manual")
	vm.Spec.RunStrategy = new(virtv1.RunStrategyManual)
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)

	c.request(t, key, startRequest(nil))
	p := c.startGuest(t, key)
	c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
	c.met(t, key)

	first := c.vmi(t, key)
	c.request(t, key, stopRequest(first), startRequest(nil)) // a restart
	c.beingStopped(t, key)
	c.guestEnds(t, key, p, virtv1.Succeeded)
	p = c.startGuest(t, key, p.UID)
	c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
	c.met(t, key)
	second := c.vmi(t, key)
	if second.UID == first.UID {
		t.Error("the VM was not restarted")
	}

	c.guestEnds(t, key, p, virtv1.Succeeded) // by itself
	c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)
	c.stays(t, key, second.UID, virtv1.Succeeded)
	c.request(t, key, stopRequest(second), startRequest(map[string]string{virtv1.StartRequestDataPausedKey: virtv1.StartRequestDataPausedTrue}))
	p = c.startGuest(t, key, p.UID)
	c.met(t, key)
	third := c.vmi(t, key)
	if third.Spec.StartStrategy == nil || *third.Spec.StartStrategy != virtv1.StartStrategyPaused {
		t.Errorf("a start that asks for a paused guest made %v", third.Spec.StartStrategy)
	}

	c.request(t, key, stopRequest(third))
	c.beingStopped(t, key)
	c.guestEnds(t, key, p, virtv1.Succeeded)
	c.gone(t, third)
	c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)
	c.met(t, key)
	must(t, c.Get(t.Context(), key, vm))
	if *vm.Spec.RunStrategy != virtv1.RunStrategyManual {
		t.Errorf("the run strategy became %s", *vm.Spec.RunStrategy)
	}
}

// A halted VM that is to start paused is let run, by the field that its user wrote.
func TestAHaltedVMIsLetRunPaused(t *testing.T) {
	c := start(t)
	for name, set := range map[string]func(*virtv1.VirtualMachine){
		"strategy": func(vm *virtv1.VirtualMachine) { vm.Spec.RunStrategy = new(virtv1.RunStrategyHalted) },
		"running":  func(vm *virtv1.VirtualMachine) { vm.Spec.RunStrategy, vm.Spec.Running = nil, new(false) },
	} {
		vm := newVM(c.namespace(t), name)
		set(vm)
		must(t, c.Create(t.Context(), vm))
		key := client.ObjectKeyFromObject(vm)
		c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)
		c.request(t, key, startRequest(map[string]string{virtv1.StartRequestDataPausedKey: virtv1.StartRequestDataPausedTrue}))
		c.launcher(t, key)
		c.met(t, key)
		if made := c.vmi(t, key); made.Spec.StartStrategy == nil || *made.Spec.StartStrategy != virtv1.StartStrategyPaused {
			t.Errorf("%s: the VMI's start strategy is %v", name, made.Spec.StartStrategy)
		}
		must(t, c.Get(t.Context(), key, vm))
		if got, err := vm.RunStrategy(); err != nil || got != virtv1.RunStrategyAlways || (vm.Spec.Running == nil) != (name == "strategy") {
			t.Errorf("%s: the VM is to run as %s, %v: %+v", name, got, err, vm.Spec)
		}
	}
}

func TestARunningVMIsRestarted(t *testing.T) {
	c := start(t)
	key, p := c.run(t, "restarted")
	first := c.vmi(t, key)
	c.request(t, key, stopRequest(first), startRequest(nil))
	c.beingStopped(t, key)
	c.vmIs(t, key, virtv1.VirtualMachineStatusStopping)
	c.guestEnds(t, key, p, virtv1.Succeeded)
	c.startGuest(t, key, p.UID)
	c.vmIs(t, key, virtv1.VirtualMachineStatusRunning)
	c.met(t, key)
	if c.vmi(t, key).UID == first.UID {
		t.Error("the VM was not restarted")
	}
}
