package instancetype_test

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/scheme"
)

func small() *v1beta1.VirtualMachineClusterInstancetype {
	it := &v1beta1.VirtualMachineClusterInstancetype{ObjectMeta: metav1.ObjectMeta{
		Name: "small", UID: "1-2", Generation: 3, Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
	it.Spec.CPU.Guest, it.Spec.Memory.Guest = 2, resource.MustParse("1Gi")
	return it
}

func web() *virtv1.VirtualMachine {
	vm := ofDataVolume()
	vm.UID = "vm-uid"
	vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{Name: "small"}
	return vm
}

// A revision is as the field has it, for clients and controllers that know that.
func TestARevisionHoldsTheWholeObject(t *testing.T) {
	revision, err := instancetype.NewRevision(web(), small())
	if err != nil {
		t.Fatal(err)
	}
	if revision.Name != "web-small-v1beta1-1-2-3" || revision.Namespace != "shop" || !metav1.IsControlledBy(revision, web()) {
		t.Errorf("it is %+v", revision.ObjectMeta)
	}
	for key, want := range map[string]string{"generation": "3", "kind": "VirtualMachineClusterInstancetype", "name": "small", "uid": "1-2", "version": "v1beta1"} {
		if got := revision.Labels["instancetype.kubevirt.io/object-"+key]; got != want {
			t.Errorf("label object-%s is %q, want %q", key, got, want)
		}
	}
	held := map[string]any{}
	if err := json.Unmarshal(revision.Data.Raw, &held); err != nil {
		t.Fatal(err)
	}
	text := string(revision.Data.Raw)
	if held["apiVersion"] != "instancetype.kubevirt.io/v1beta1" || held["kind"] != "VirtualMachineClusterInstancetype" ||
		!strings.Contains(text, `"memory":{"guest":"1Gi"}`) || !strings.Contains(text, `"uid":"1-2"`) || strings.Contains(text, "managedFields") || strings.Contains(text, "labels") {
		t.Errorf("it holds %s", text)
	}
	long := small()
	long.Name = strings.Repeat("a", 250)
	if revision, err = instancetype.NewRevision(web(), long); err != nil || len(revision.Name) > 253 || !strings.HasSuffix(revision.Name, "-v1beta1-1-2-3") {
		t.Errorf("that of a long name is %s, %v", revision.Name, err)
	}
	if _, named := revision.Labels["instancetype.kubevirt.io/object-name"]; named {
		t.Error("a label is longer than labels are")
	}
}

// What a VM has stays what it was, whatever becomes of the object.
func TestARevisionIsReadInThePlaceOfTheObject(t *testing.T) {
	revision, err := instancetype.NewRevision(web(), small())
	if err != nil {
		t.Fatal(err)
	}
	preference := &v1beta1.VirtualMachinePreference{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "likes", UID: "3-4", Generation: 1}}
	other, err := instancetype.NewRevision(web(), preference)
	if err != nil {
		t.Fatal(err)
	}
	machine := revision.DeepCopy()
	machine.Name, machine.Data.Raw = "machine", []byte(`{"spec":{"template":{}}}`)
	edited := small()
	edited.Spec.CPU.Guest, edited.ManagedFields = 8, nil
	r := instancetype.Resolver{Reader: fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(edited, revision, other, machine).Build()}
	ref := instancetype.Reference{Kind: instancetype.KindClusterInstancetype, Name: "small"}
	if spec, object, err := r.Instancetype(t.Context(), "shop", ref); err != nil || spec.CPU.Guest != 8 || object == nil {
		t.Errorf("the object says %+v, %v, %v", spec, object, err)
	}
	ref.Revision = revision.Name
	if spec, object, err := r.Instancetype(t.Context(), "shop", ref); err != nil || spec.CPU.Guest != 2 || object != nil {
		t.Errorf("the revision says %+v, %v, %v", spec, object, err)
	}
	for name, want := range map[string]string{"gone": "ControllerRevision gone, which holds what the VM has, not found", other.Name: "holds a VirtualMachinePreference", "machine": "holds no instance type or preference"} {
		ref.Revision = name
		if _, _, err := r.Instancetype(t.Context(), "shop", ref); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

func TestWhatAVMHasIsPinned(t *testing.T) {
	vm := web()
	vm.Spec.Preference = &virtv1.PreferenceMatcher{InferFromVolume: "disk"}
	vm.Status.InstancetypeRef = &virtv1.InstancetypeStatusRef{Name: "small", Kind: instancetype.KindClusterInstancetype, ControllerRevisionRef: &virtv1.ControllerRevisionRef{Name: "web-small-v1beta1-1-2-3"}}
	vm.Status.PreferenceRef = &virtv1.InstancetypeStatusRef{Name: "likes", Kind: instancetype.KindPreference, InferFromVolume: "disk"}
	vm.Status.InstancetypeRef = instancetype.Moved(vm.Status.InstancetypeRef, "web", "content")
	instancetype.Pin(&vm.Spec, &vm.Status)
	if m := vm.Spec.Instancetype; *m != (virtv1.InstancetypeMatcher{Name: "small", RevisionName: "content-small-v1beta1-1-2-3"}) {
		t.Errorf("the instance type is %+v", m)
	}
	if m := vm.Spec.Preference; *m != (virtv1.PreferenceMatcher{Name: "likes", Kind: instancetype.KindPreference}) {
		t.Errorf("the preference is %+v", m)
	}
	vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{Name: "other"}
	instancetype.Pin(&vm.Spec, &vm.Status)
	if vm.Spec.Instancetype.RevisionName != "" {
		t.Errorf("another instance type is pinned: %+v", vm.Spec.Instancetype)
	}
}

func TestARevisionThatMovesHasAName(t *testing.T) {
	const uid = "-v1beta1-0b5f-2"
	long := strings.Repeat("x", 250)
	for name, c := range map[string]struct{ revision, from, to, want string }{
		"short":               {"web-small" + uid, "web", "copy", "copy-small" + uid},
		"to a long name":      {"web-small" + uid, "web", long, long[:253-len(uid)] + uid},
		"from a long name":    {long[:253-len(uid)] + uid, long, "copy", ("copy-" + long)[:253-len(uid)] + uid},
		"that somebody named": {"mine", "web", "copy", "copy-mine"},
	} {
		ref := &virtv1.InstancetypeStatusRef{ControllerRevisionRef: &virtv1.ControllerRevisionRef{Name: c.revision}}
		if got := instancetype.RevisionOf(instancetype.Moved(ref, c.from, c.to)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
