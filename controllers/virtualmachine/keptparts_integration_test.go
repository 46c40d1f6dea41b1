//go:build integration

package virtualmachine

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	instancetypeapi "kubevirt.io/api/instancetype"
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// ofType makes the VM one of instance type name.
func (w *world) ofType(name string) {
	w.t.Helper()
	patch := `{"spec":{"instancetype":{"kind":"VirtualMachineInstancetype","name":"` + name + `"},"template":{"spec":{"domain":{"memory":null,"resources":null,"cpu":null}}}}}`
	w.must(w.Patch(w.t.Context(), w.vm, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// makeType makes an instance type in the VM's namespace.
func (w *world) makeType(name, memory string) *v1beta1.VirtualMachineInstancetype {
	w.t.Helper()
	it := &v1beta1.VirtualMachineInstancetype{ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: name}}
	it.Spec.CPU.Guest, it.Spec.Memory.Guest = 1, resource.MustParse(memory)
	w.must(w.Create(w.t.Context(), it))
	return it
}

func (w *world) read() *virtv1.VirtualMachine {
	w.t.Helper()
	w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	return w.vm
}

// end removes the VM's instance.
func (w *world) end() {
	w.t.Helper()
	vmi := w.vmi()
	vmi.Finalizers = nil
	w.must(w.Update(w.t.Context(), vmi))
	w.must(w.Delete(w.t.Context(), vmi))
}

// A VM has its instance type as it was when it first started with it: while it runs, at its next start, and when the object is gone.
func keptType(t *testing.T, w *world) {
	it := w.makeType("size", "128Mi")
	w.ofType("size")
	w.pass(&lagging.Client{})
	ref := w.read().Status.InstancetypeRef
	name := instancetype.RevisionOf(ref)
	if ref == nil || ref.Name != "size" || !strings.HasPrefix(name, "vm-size-v1beta1-"+string(it.UID)) {
		t.Fatalf("the status has %+v", ref)
	}
	revision := &appsv1.ControllerRevision{}
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.vm.Namespace, Name: name}, revision))
	if !metav1.IsControlledBy(revision, w.vm) {
		t.Errorf("its owners are %+v", revision.OwnerReferences)
	}

	it.Spec.Memory.Guest = resource.MustParse("256Mi")
	w.must(w.Update(t.Context(), it))
	w.change(`{"metadata":{"labels":{"a":"b"}}}`)
	w.wantRestart("an edit of the instance type, and a label", "")
	if vmi := w.vmi(); vmi.Spec.Domain.Memory.Guest.String() != "128Mi" || Outdated(w.vm, vmi) {
		t.Errorf("the edit reached the guest: %s", vmi.Spec.Domain.Memory.Guest)
	}

	w.must(w.Delete(t.Context(), it))
	w.end()
	w.pass(&lagging.Client{})
	if vmi := w.vmi(); vmi.Spec.Domain.Memory == nil || vmi.Spec.Domain.Memory.Guest.String() != "128Mi" {
		t.Errorf("the next instance has memory %+v", vmi.Spec.Domain.Memory)
	}

	w.makeType("other", "64Mi")
	w.ofType("other")
	w.end()
	w.pass(&lagging.Client{})
	if ref := w.read().Status.InstancetypeRef; ref.Name != "other" || !strings.HasPrefix(instancetype.RevisionOf(ref), "vm-other-") {
		t.Errorf("after a change of the matcher the status has %+v", ref)
	}
	if vmi := w.vmi(); vmi.Spec.Domain.Memory.Guest.String() != "64Mi" {
		t.Errorf("the instance of another type has %s", vmi.Spec.Domain.Memory.Guest)
	}
}

// What a disk's label said when the VM started stays known, though the next pass sees the VM as it was before.
func inferredType(t *testing.T, w *world) {
	w.makeType("size", "128Mi")
	w.must(w.Create(t.Context(), &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: "data", Labels: map[string]string{
			instancetypeapi.DefaultInstancetypeLabel: "size", instancetypeapi.DefaultInstancetypeKindLabel: "VirtualMachineInstancetype",
		}},
		Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}},
	}))
	patch := `{"spec":{"instancetype":{"inferFromVolume":"data"},"template":{"spec":{"domain":{"memory":null,"resources":null,"cpu":null}}}}}`
	w.must(w.Patch(t.Context(), w.vm, client.RawPatch(types.MergePatchType, []byte(patch))))
	w.read().Finalizers = nil // the first pass writes it, and its status all the same
	w.must(w.Update(t.Context(), w.vm))
	past := w.read().DeepCopy()
	w.pass(&lagging.Client{})
	if ref := w.read().Status.InstancetypeRef; ref == nil || ref.Name != "size" || ref.InferFromVolume != "data" {
		t.Fatalf("the status has %+v", ref)
	}
	w.pass(&lagging.Client{Past: []client.Object{past}})
	if ref := w.read().Status.InstancetypeRef; ref == nil || instancetype.RevisionOf(ref) == "" {
		t.Errorf("after a pass that saw the VM as it was: %+v", ref)
	}
}

// A revision that is nobody's stays so: it is not to go with a VM that only uses it, as one that an administrator made by hand.
func foreignRevision(t *testing.T, w *world) {
	w.makeType("size", "128Mi")
	w.ofType("size")
	w.pass(&lagging.Client{})
	key := client.ObjectKey{Namespace: w.vm.Namespace, Name: instancetype.RevisionOf(w.read().Status.InstancetypeRef)}
	revision := &appsv1.ControllerRevision{}
	w.must(w.Get(t.Context(), key, revision))
	revision.OwnerReferences = nil
	w.must(w.Update(t.Context(), revision))
	w.end()
	w.vm.Status.InstancetypeRef = nil
	w.must(w.Status().Update(t.Context(), w.vm))
	w.pass(&lagging.Client{})
	w.must(w.Get(t.Context(), key, revision))
	if got := instancetype.RevisionOf(w.read().Status.InstancetypeRef); got != key.Name || len(revision.OwnerReferences) > 0 {
		t.Errorf("the VM has revision %q, whose owners are %+v", got, revision.OwnerReferences)
	}
}

// A start that fails time and again is told once.
func toldOnce(t *testing.T, w *world) {
	w.ofType("gone")
	for range 4 {
		r := &Reconciler{Client: w.Client, live: w.Client, resolver: instancetype.Resolver{Reader: w.Client}, copies: progress.New(nil), events: w.recorder, now: time.Now}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.vm)}); err == nil {
			t.Fatal("a VM of no instance type starts")
		}
	}
	close(w.recorder.Events)
	warnings := 0
	for event := range w.recorder.Events {
		if strings.HasPrefix(event, corev1.EventTypeWarning) {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("%d warnings", warnings)
	}
}

// A disk whose template names no storage class is of the one that the VM's preference prefers.
func preferredClass(t *testing.T, w *world) {
	preference := &v1beta1.VirtualMachinePreference{ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: "likes"}}
	preference.Spec.Volumes = &v1beta1.VolumePreferences{PreferredStorageClassName: "fast"}
	w.must(w.Create(t.Context(), preference))
	patch := `{"spec":{"preference":{"kind":"VirtualMachinePreference","name":"likes"}}}`
	w.must(w.Patch(t.Context(), w.vm, client.RawPatch(types.MergePatchType, []byte(patch))))
	w.pass(&lagging.Client{})
	dv := &cdiv1.DataVolume{}
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.vm.Namespace, Name: "data"}, dv))
	var class *string
	switch {
	case dv.Spec.Storage != nil:
		class = dv.Spec.Storage.StorageClassName
	case dv.Spec.PVC != nil:
		class = dv.Spec.PVC.StorageClassName
	}
	if class == nil || *class != "fast" {
		t.Errorf("the DataVolume is %+v", dv.Spec)
	}
}
