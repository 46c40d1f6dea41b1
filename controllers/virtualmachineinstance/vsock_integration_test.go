//go:build integration

package virtualmachineinstance

import (
	"testing"
	"time"

	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// talkative makes another VMI with sockets to its node.
func (w *world) talkative(name string) *virtv1.VirtualMachineInstance {
	w.t.Helper()
	vmi := w.vmi.DeepCopy()
	vmi.ObjectMeta = fixture.VM(w.vmi.Namespace, name).ObjectMeta
	vmi.Finalizers = w.vmi.Finalizers
	vmi.Spec.Domain.Devices.AutoattachVSOCK = new(true)
	w.must(w.Create(w.t.Context(), vmi))
	return vmi
}

// Each guest has an address of its own, also where the cache shows none of those given, and keeps it.
func addressesOfGuests(t *testing.T, w *world) {
	first, second, third := w.talkative("first"), w.talkative("second"), w.talkative("third")
	seen := map[uint32]string{}
	reconcile := func(r *Reconciler, vmi *virtv1.VirtualMachineInstance) {
		t.Helper()
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(vmi)})
		w.must(err)
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
		cid := vmi.Status.VSOCKCID
		if cid == nil || *cid < minCID || *cid > maxCID {
			t.Fatalf("VMI %s has the address %v", vmi.Name, cid)
		}
		if other := seen[*cid]; other != "" && other != vmi.Name {
			t.Errorf("VMI %s has the address %d of %s", vmi.Name, *cid, other)
		}
		seen[*cid] = vmi.Name
	}
	controller := func(unseen ...client.Object) *Reconciler {
		return &Reconciler{
			Client: w.cache(unseen...), live: w.Client, events: w.recorder, now: time.Now,
			options: Options{LauncherImage: "launcher", ProvisionerImage: "slipway"},
		}
	}
	one := controller()
	reconcile(one, first)
	reconcile(one, second)
	given := *first.Status.VSOCKCID
	// A controller that comes after it, whose cache is behind.
	next := controller(first, second)
	next.cids.given = nil
	reconcile(next, third)
	if taken := len(next.cids.given); taken != 1 {
		t.Errorf("it remembers %d addresses, want the one that it gave", taken)
	}
	w.must(client.IgnoreNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(first), first)))
	reconcile(one, first)
	if *first.Status.VSOCKCID != given || len(seen) != 3 {
		t.Errorf("the first has %d by now, want %d; all: %v", *first.Status.VSOCKCID, given, seen)
	}
	for _, p := range w.pods() {
		if limit := p.Spec.Containers[0].Resources.Limits[names.DeviceVhostVSOCK]; limit.Value() != 1 {
			t.Errorf("the pod %s asks for %s of the device", p.Name, limit.String())
		}
	}
	if len(w.pods()) != 3 {
		t.Errorf("there are %d pods", len(w.pods()))
	}
	w.pass()
	if w.vmi.Status.VSOCKCID != nil {
		t.Error("a VMI without the device has an address")
	}
}
