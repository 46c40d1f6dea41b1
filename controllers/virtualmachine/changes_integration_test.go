//go:build integration

package virtualmachine

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// change patches the spec of the VM's template, and makes a pass.
func (w *world) change(spec string) {
	w.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"template":`+spec+`}}`))
	w.must(w.Patch(w.t.Context(), w.vm, patch))
	w.pass(&lagging.Client{})
	w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
}

// restart is the message of the VM's condition RestartRequired.
func (w *world) restart() string {
	for _, c := range w.vm.Status.Conditions {
		if c.Type == virtv1.VirtualMachineRestartRequired {
			return c.Message
		}
	}
	return ""
}

func (w *world) wantRestart(after, want string) {
	w.t.Helper()
	if got := w.restart(); got != want {
		w.t.Errorf("after %s: RestartRequired %q, want %q", after, got, want)
	}
}

// What a VM was started with can be without it: the garbage collector, whose patch this is, can
// let it go.
func revisionsOwners(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	revision := &appsv1.ControllerRevision{}
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.vm.Namespace, Name: w.vmi().Status.VirtualMachineRevisionName}, revision))
	patch := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":%q}]}}`, w.vm.UID)
	w.must(w.Patch(t.Context(), revision, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	if len(revision.OwnerReferences) > 0 {
		t.Errorf("it has the owners %+v", revision.OwnerReferences)
	}
}

// A running VM says that it must be restarted for as long as that is so, and hands over
// what its guest can take up.
func followedChanges(t *testing.T, w *world) {
	w.change(`{"spec":{"domain":{"cpu":{"sockets":1,"maxSockets":3},"memory":{"maxGuest":"256Mi"}}}}`)
	vmi := w.vmi()
	if vmi.Status.VirtualMachineRevisionName != revisionName(w.vm) {
		t.Fatalf("the instance names revision %q, want %s", vmi.Status.VirtualMachineRevisionName, revisionName(w.vm))
	}
	vmi.Status.Phase = virtv1.Running
	vmi.Status.CurrentCPUTopology = &virtv1.CPUTopology{Sockets: 1, Cores: 1, Threads: 1}
	boot := resource.MustParse("128Mi")
	vmi.Status.Memory = &virtv1.MemoryStatus{GuestAtBoot: &boot, GuestRequested: &boot, GuestCurrent: &boot}
	w.must(w.Update(t.Context(), vmi))

	w.change(`{"spec":{"hostname":"other"}}`)
	w.wantRestart("another host name", messageRestartNeeded)
	if w.vm.Status.ObservedGeneration == w.vm.Generation {
		t.Error("the instance is said to have the change")
	}
	w.change(`{"spec":{"hostname":null}}`)
	w.wantRestart("taking it back", "")
	w.change(`{"metadata":{"labels":{"a":"b"}}}`)
	w.wantRestart("a label of the template", "")
	w.change(`{"spec":{"terminationGracePeriodSeconds":20,"architecture":"amd64"}}`)
	w.wantRestart("what is so by default", "")
	w.change(`{"spec":{"domain":{"cpu":{"sockets":4}}}}`)
	w.wantRestart("too many sockets", messageTooManySockets)

	w.change(`{"spec":{"domain":{"cpu":{"sockets":2},"memory":{"guest":"192Mi"}}}}`)
	w.wantRestart("what can be changed live", "")
	vmi = w.vmi()
	if vmi.Spec.Domain.CPU.Sockets != 2 || vmi.Spec.Domain.Memory.Guest.String() != "192Mi" || Outdated(w.vm, vmi) {
		t.Errorf("the instance has %d sockets, %s; outdated: %v", vmi.Spec.Domain.CPU.Sockets, vmi.Spec.Domain.Memory.Guest, Outdated(w.vm, vmi))
	}
	oneRevision(t, w)

	w.must(w.Delete(t.Context(), vmi))
	vmi.Finalizers = nil
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
	vmi.Finalizers = nil
	w.must(w.Update(t.Context(), vmi))
	w.change(`{"spec":{"hostname":"other"}}`)
	if next := w.vmi(); next.UID == vmi.UID || next.Status.VirtualMachineRevisionName != revisionName(w.vm) {
		t.Errorf("the next instance names revision %q, want %s", next.Status.VirtualMachineRevisionName, revisionName(w.vm))
	}
	oneRevision(t, w)
}

// oneRevision makes sure that only what the VM was started with last is kept.
func oneRevision(t *testing.T, w *world) {
	t.Helper()
	list := &appsv1.ControllerRevisionList{}
	w.must(w.List(t.Context(), list, client.InNamespace(w.vm.Namespace)))
	if len(list.Items) != 1 || list.Items[0].Name != w.vmi().Status.VirtualMachineRevisionName {
		t.Errorf("the revisions %+v, want the last only", list.Items)
	}
}
