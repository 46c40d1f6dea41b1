package instancetype

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/controllerrevision"
	"github.com/slipway-vm/slipway/internal/keep"
)

// A ControllerRevision holds an instance type or a preference as it was when a VM first started with it, in the form that
// the field has: the whole object, and labels that say which it is.

// NewRevision makes the revision of obj for vm, whose it is.
func NewRevision(vm *virtv1.VirtualMachine, obj client.Object) (*appsv1.ControllerRevision, error) {
	held, err := bare(obj)
	if err != nil {
		return nil, err
	}
	data, err := controllerrevision.Data(held)
	if err != nil {
		return nil, fmt.Errorf("keeping %s as a revision: %w", obj.GetName(), err)
	}
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: revisionName(vm.Name, held), Labels: labels(held)},
		Data:       data,
	}
	keep.Give(revision, vm)
	return revision, nil
}

// revisionName is what the field names the revision of held for an owner. What is too long for a name is cut off before its uid.
func revisionName(owner string, held client.Object) string {
	return cut(owner+"-"+held.GetName(), fmt.Sprintf("-%s-%s-%d", v1beta1.SchemeGroupVersion.Version, held.GetUID(), held.GetGeneration()))
}

// cut is a name of head and tail, of which head is shortened where that is too long.
func cut(head, tail string) string {
	if room := validation.DNS1123SubdomainMaxLength - len(tail); len(head) > room {
		head = strings.TrimRight(head[:max(room, 0)], "-.")
	}
	return head + tail
}

func labels(held client.Object) map[string]string {
	all := map[string]string{
		api.ControllerRevisionObjectGenerationLabel: strconv.FormatInt(held.GetGeneration(), 10),
		api.ControllerRevisionObjectKindLabel:       held.GetObjectKind().GroupVersionKind().Kind,
		api.ControllerRevisionObjectUIDLabel:        string(held.GetUID()),
		api.ControllerRevisionObjectVersionLabel:    v1beta1.SchemeGroupVersion.Version,
	}
	if len(validation.IsValidLabelValue(held.GetName())) == 0 { // a name may be longer
		all[api.ControllerRevisionObjectNameLabel] = held.GetName()
	}
	return all
}

// kindOf is the kind of obj, which what was read may not say.
func kindOf(obj client.Object) (string, error) {
	switch obj.(type) {
	case *v1beta1.VirtualMachineClusterInstancetype:
		return KindClusterInstancetype, nil
	case *v1beta1.VirtualMachineInstancetype:
		return KindInstancetype, nil
	case *v1beta1.VirtualMachineClusterPreference:
		return KindClusterPreference, nil
	case *v1beta1.VirtualMachinePreference:
		return KindPreference, nil
	}
	return "", fmt.Errorf("%T is no instance type or preference", obj)
}

// bare is a copy of obj with its kind, without what does not concern VMs.
func bare(obj client.Object) (client.Object, error) {
	held, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("copying %T %s failed", obj, obj.GetName())
	}
	kind, err := kindOf(obj)
	if err != nil {
		return nil, err
	}
	held.GetObjectKind().SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(kind))
	held.SetLabels(nil)
	held.SetAnnotations(nil)
	held.SetFinalizers(nil)
	held.SetOwnerReferences(nil)
	held.SetManagedFields(nil)
	return held, nil
}

// kept reads the object that a revision holds.
func (r Resolver) kept(ctx context.Context, namespace, name string) (client.Object, error) {
	revision := &appsv1.ControllerRevision{}
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, revision)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("ControllerRevision %s, which holds what the VM has, not found; set revisionName to another one, or name another instance type or preference: %w", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s: %w", name, err)
	}
	return decode(revision)
}

// decode returns the object that revision holds.
func decode(revision *appsv1.ControllerRevision) (client.Object, error) {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(revision.Data.Raw, &kind); err != nil {
		return nil, fmt.Errorf("reading what ControllerRevision %s holds: %w", revision.Name, err)
	}
	obj := newObject(kind.Kind)
	if obj == nil || kind.APIVersion != v1beta1.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("ControllerRevision %s holds no instance type or preference of %s, but %s %s", revision.Name, v1beta1.SchemeGroupVersion, kind.APIVersion, kind.Kind)
	}
	if err := json.Unmarshal(revision.Data.Raw, obj); err != nil {
		return nil, fmt.Errorf("reading what ControllerRevision %s holds: %w", revision.Name, err)
	}
	return obj, nil
}

// Pin makes spec ask for what a VM of that spec has by its status: by name, where it was inferred from a disk, and as its revision holds it.
func Pin(spec *virtv1.VirtualMachineSpec, status *virtv1.VirtualMachineStatus) {
	if m, was := spec.Instancetype, status.InstancetypeRef; m != nil && was != nil && StillAsked(m, was) {
		if m.InferFromVolume != "" {
			m.Name, m.Kind, m.InferFromVolume, m.InferFromVolumeFailurePolicy = was.Name, was.Kind, "", nil
		}
		m.RevisionName = cmp.Or(RevisionOf(was), m.RevisionName)
	}
	if m, was := spec.Preference, status.PreferenceRef; m != nil && was != nil && StillAsked(m, was) {
		if m.InferFromVolume != "" {
			m.Name, m.Kind, m.InferFromVolume, m.InferFromVolumeFailurePolicy = was.Name, was.Kind, "", nil
		}
		m.RevisionName = cmp.Or(RevisionOf(was), m.RevisionName)
	}
}

// RevisionOf is the revision that ref, which may be nil, names; empty for none.
func RevisionOf(ref *virtv1.InstancetypeStatusRef) string {
	if ref == nil || ref.ControllerRevisionRef == nil {
		return ""
	}
	return ref.ControllerRevisionRef.Name
}

// Moved is ref, which may be nil, with the revision that its revision, which is from's, is copied to for to.
func Moved(ref *virtv1.InstancetypeStatusRef, from, to string) *virtv1.InstancetypeStatusRef {
	moved := ref.DeepCopy()
	if RevisionOf(ref) != "" {
		name := strings.TrimPrefix(RevisionOf(ref), from+"-")
		tail := max(strings.LastIndex(name, "-"+v1beta1.SchemeGroupVersion.Version+"-"), 0) // what tells it from others
		moved.ControllerRevisionRef.Name = cut(to+"-"+name[:tail], name[tail:])
	}
	return moved
}

// Copy makes a revision of the name with what revision holds, and no owner.
func Copy(revision *appsv1.ControllerRevision, name string) *appsv1.ControllerRevision {
	labels := map[string]string{}
	for key, value := range revision.Labels {
		if strings.HasPrefix(key, api.GroupName+"/") {
			labels[key] = value
		}
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: revision.Namespace, Name: name, Labels: labels},
		Data:       *revision.Data.DeepCopy(), Revision: revision.Revision,
	}
}
