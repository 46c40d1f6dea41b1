//go:build integration

package virtualmachine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// halt stops the VM, after another change of its spec.
func (w *world) halt(change func(*virtv1.VirtualMachineSpec)) {
	w.t.Helper()
	w.vm.Spec.RunStrategy, w.vm.Spec.Running = new(virtv1.RunStrategyHalted), nil
	change(&w.vm.Spec)
	w.must(w.Update(w.t.Context(), w.vm))
}

// wantWords makes a pass, and checks the VM's word and what the condition says: status, reason and message.
func (w *world) wantWords(word virtv1.VirtualMachinePrintableStatus, kind virtv1.VirtualMachineConditionType, want string) {
	w.t.Helper()
	w.pass(&lagging.Client{})
	w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	got := ""
	for _, c := range w.vm.Status.Conditions {
		if c.Type == kind {
			got = string(c.Status) + " " + c.Reason + " " + c.Message
		}
	}
	if w.vm.Status.PrintableStatus != word || !strings.HasPrefix(got, want) || (got == "") != (want == "") {
		w.t.Errorf("the VM is %s and its condition %s says %q, want %s and %q", w.vm.Status.PrintableStatus, kind, got, word, want)
	}
}

// A halted VM says what becomes of its disks, from the pass on that makes them, and makes no instance.
func haltedWhileFilled(_ *testing.T, w *world) {
	w.clock = time.Now().Truncate(time.Second) // which stands still: what is told depends on how old the words are
	w.halt(func(*virtv1.VirtualMachineSpec) {})
	w.wantWords(virtv1.VirtualMachineStatusProvisioning, conditionProvisioning, "True ImportInProgress DataVolume data is pending")
	dv := &cdiv1.DataVolume{}
	key := client.ObjectKey{Namespace: w.vm.Namespace, Name: "data"}
	w.must(w.Get(w.t.Context(), key, dv))
	becomes := func(phase cdiv1.DataVolumePhase, progress cdiv1.DataVolumeProgress, message string) {
		dv.Status.Phase, dv.Status.Progress = phase, progress
		dv.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Status: "False", Message: message}}
		w.must(w.Status().Update(w.t.Context(), dv))
	}
	becomes(cdiv1.ImportInProgress, "40.1%", "")
	w.wantWords(virtv1.VirtualMachineStatusProvisioning, conditionProvisioning, "True ImportInProgress DataVolume data is pending")
	if result := w.pass(&lagging.Client{}); result.RequeueAfter <= 0 || result.RequeueAfter > progressStep {
		w.t.Errorf("progress is told after %s", result.RequeueAfter)
	}
	w.age()
	w.wantWords(virtv1.VirtualMachineStatusProvisioning, conditionProvisioning, "True ImportInProgress import of DataVolume data at 40 %")
	becomes(cdiv1.ImportInProgress, "41.7%", "404 Not Found")
	w.age()
	w.wantWords(virtv1.VirtualMachineStatusProvisioning, conditionProvisioning, "True ImportInProgress import of DataVolume data at 41 %: 404 Not Found")
	becomes(cdiv1.Failed, "N/A", "the checksum is another")
	w.wantWords(virtv1.VirtualMachineStatusDataVolumeError, conditionSynchronized, "False DataVolumeFailed DataVolume data failed: the checksum is another")
	becomes(cdiv1.WaitForFirstConsumer, "N/A", "")
	w.wantWords(virtv1.VirtualMachineStatusStopped, conditionProvisioning, "False WaitForFirstConsumer DataVolume data waits for a node to be chosen: it is filled when the VM is started")
	w.wantWords(virtv1.VirtualMachineStatusStopped, conditionSynchronized, "")
	if w.vmi().UID != "" {
		w.t.Error("a halted VM has an instance")
	}
}

// age lets the words of the VM's conditions be old.
func (w *world) age() {
	w.t.Helper()
	for i := range w.vm.Status.Conditions {
		if c := &w.vm.Status.Conditions[i]; !c.LastProbeTime.IsZero() {
			c.LastProbeTime.Time = c.LastProbeTime.Add(-progressStep)
		}
	}
	w.must(w.Status().Update(w.t.Context(), w.vm))
}

// A halted VM says what would keep it from starting, until it is there.
func haltedUnstartable(t *testing.T, w *world) {
	w.halt(func(spec *virtv1.VirtualMachineSpec) {
		spec.DataVolumeTemplates = nil
		spec.Instancetype = &virtv1.InstancetypeMatcher{Kind: instancetype.KindInstancetype, Name: "small"}
		spec.Template.Spec.Domain.Memory, spec.Template.Spec.Domain.CPU, spec.Template.Spec.Domain.Resources = nil, nil, virtv1.ResourceRequirements{}
	})
	w.wantWords(virtv1.VirtualMachineStatusStopped, virtv1.VirtualMachineFailure, "True FailedCreate it cannot be started: ")
	if result := w.pass(&lagging.Client{}); result.RequeueAfter != lookAgain {
		t.Errorf("it is looked at again after %s", result.RequeueAfter)
	}
	w.wantWords(virtv1.VirtualMachineStatusStopped, conditionSynchronized, "False FailedPvcNotFound DataVolume data not found")
	r := &Reconciler{Client: w.Client}
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: "data"}}
	for what, found := range map[string]int{"DataVolume": len(r.namers(t.Context(), dv)), "claim": len(r.foreseers(t.Context(), dv))} {
		if found != 1 {
			t.Errorf("a %s of the name wakes %d VMs", what, found)
		}
	}
	it := &v1beta1.VirtualMachineInstancetype{ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: "small"}}
	it.Spec.CPU.Guest, it.Spec.Memory.Guest = 1, resource.MustParse("96Mi")
	w.must(w.Create(t.Context(), it))
	w.must(w.Create(t.Context(), dv))
	dv.Status.Phase = cdiv1.ImportInProgress
	w.must(w.Status().Update(t.Context(), dv))
	w.wantWords(virtv1.VirtualMachineStatusProvisioning, virtv1.VirtualMachineFailure, "")
}
