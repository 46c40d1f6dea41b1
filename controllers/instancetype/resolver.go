package instancetype

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kinds that matchers name.
const (
	KindInstancetype        = "VirtualMachineInstancetype"
	KindClusterInstancetype = "VirtualMachineClusterInstancetype"
	KindPreference          = "VirtualMachinePreference"
	KindClusterPreference   = "VirtualMachineClusterPreference"
)

// Reference names an instance type or a preference. An empty Name means none.
type Reference struct {
	Kind string
	Name string
	// InferredFrom is the volume that the name was inferred from, if it was.
	InferredFrom string
	// Revision is the ControllerRevision that holds the object as the VM has it; empty while there is none.
	Revision string
}

// Resolver finds what VirtualMachines refer to.
type Resolver struct {
	client.Reader
}

// References returns the instance type and the preference that vm names, or that its
// volumes carry the names of. What was found before, and stands in vm's status, stays for as
// long as vm asks for it: neither a label nor an object that changes later changes a VM that exists.
func (r Resolver) References(ctx context.Context, vm *virtv1.VirtualMachine) (it, preference Reference, err error) {
	if it, err = r.InstancetypeOf(ctx, vm); err != nil {
		return it, preference, err
	}
	preference, err = r.PreferenceOf(ctx, vm)
	return it, preference, err
}

// InstancetypeOf returns the instance type that vm names or its volumes do.
func (r Resolver) InstancetypeOf(ctx context.Context, vm *virtv1.VirtualMachine) (Reference, error) {
	if vm.Spec.Instancetype == nil {
		return Reference{}, nil
	}
	ref, err := r.reference(ctx, vm, request{
		Matcher: vm.Spec.Instancetype, nameLabel: api.DefaultInstancetypeLabel, kindLabel: api.DefaultInstancetypeKindLabel,
		kinds: []string{KindClusterInstancetype, KindInstancetype}, known: vm.Status.InstancetypeRef,
	})
	if err != nil {
		return ref, fmt.Errorf("failure to find instancetype: %w", err)
	}
	return ref, nil
}

// PreferenceOf returns the preference that vm names or its volumes do.
func (r Resolver) PreferenceOf(ctx context.Context, vm *virtv1.VirtualMachine) (Reference, error) {
	if vm.Spec.Preference == nil {
		return Reference{}, nil
	}
	ref, err := r.reference(ctx, vm, request{
		Matcher: vm.Spec.Preference, nameLabel: api.DefaultPreferenceLabel, kindLabel: api.DefaultPreferenceKindLabel,
		kinds: []string{KindClusterPreference, KindPreference}, known: vm.Status.PreferenceRef,
	})
	if err != nil {
		return ref, fmt.Errorf("failure to find preference: %w", err)
	}
	return ref, nil
}

// request is a matcher of either sort.
type request struct {
	virtv1.Matcher
	nameLabel, kindLabel string
	// kinds are those that the matcher may name; the first is meant when it names none.
	kinds []string
	known *virtv1.InstancetypeStatusRef
}

// kind is name as the API writes it.
func (req request) kind(name string) string {
	if name == "" {
		return req.kinds[0]
	}
	for _, kind := range req.kinds {
		if isKind(name, kind) {
			return kind
		}
	}
	return name
}

func (r Resolver) reference(ctx context.Context, vm *virtv1.VirtualMachine, req request) (Reference, error) {
	ref := Reference{Kind: req.kind(req.GetKind()), Name: req.GetName(), Revision: req.GetRevisionName()}
	known := req.known != nil && StillAsked(req.Matcher, req.known)
	if known && ref.Revision == "" && req.known.ControllerRevisionRef != nil {
		ref.Revision = req.known.ControllerRevisionRef.Name
	}
	volume := req.GetInferFromVolume()
	switch {
	case volume == "":
		return ref, nil
	case known:
		return Reference{Kind: req.kind(req.known.Kind), Name: req.known.Name, InferredFrom: volume, Revision: ref.Revision}, nil
	}
	name, kind, err := r.infer(ctx, vm, req)
	if err != nil {
		policy := req.GetInferFromVolumeFailurePolicy()
		if policy != nil && *policy == virtv1.IgnoreInferFromVolumeFailure && errors.Is(err, ErrNothingInferred) {
			return Reference{}, nil
		}
		return Reference{}, err
	}
	return Reference{Kind: req.kind(kind), Name: name, InferredFrom: volume, Revision: ref.Revision}, nil
}

// StillAsked says whether known, of a VM's status, is what the matcher in the VM's spec asks for.
func StillAsked(matcher virtv1.Matcher, known *virtv1.InstancetypeStatusRef) bool {
	if known.Name == "" {
		return false
	}
	if volume := matcher.GetInferFromVolume(); volume != "" {
		return known.InferFromVolume == volume
	}
	return matcher.GetName() == known.Name && ofCluster(matcher.GetKind()) == ofCluster(known.Kind)
}

// ofCluster says whether kind, which may be left out, is one for all namespaces.
func ofCluster(kind string) bool {
	return kind == "" || isKind(kind, KindClusterInstancetype) || isKind(kind, KindClusterPreference)
}

// Instancetype reads the instance type that ref names, nil for none: from its revision, or else the object itself, which is returned too.
func (r Resolver) Instancetype(ctx context.Context, namespace string, ref Reference) (*v1beta1.VirtualMachineInstancetypeSpec, client.Object, error) {
	if ref.Name == "" {
		return nil, nil, nil
	}
	kinds := fmt.Sprintf("got unexpected kind in InstancetypeMatcher: %s; use %s or %s", ref.Kind, KindInstancetype, KindClusterInstancetype)
	obj, err := r.object(ctx, namespace, ref, kinds)
	if err != nil {
		return nil, nil, err
	}
	switch it := obj.(type) {
	case *v1beta1.VirtualMachineClusterInstancetype:
		return &it.Spec, unlessKept(ref, obj), nil
	case *v1beta1.VirtualMachineInstancetype:
		return &it.Spec, unlessKept(ref, obj), nil
	}
	return nil, nil, wrongKind(ref, obj, kinds)
}

// Preference reads the preference that ref names as Instancetype does.
func (r Resolver) Preference(ctx context.Context, namespace string, ref Reference) (*v1beta1.VirtualMachinePreferenceSpec, client.Object, error) {
	if ref.Name == "" {
		return nil, nil, nil
	}
	kinds := fmt.Sprintf("got unexpected kind in PreferenceMatcher: %s; use %s or %s", ref.Kind, KindPreference, KindClusterPreference)
	obj, err := r.object(ctx, namespace, ref, kinds)
	if err != nil {
		return nil, nil, err
	}
	switch preference := obj.(type) {
	case *v1beta1.VirtualMachineClusterPreference:
		return &preference.Spec, unlessKept(ref, obj), nil
	case *v1beta1.VirtualMachinePreference:
		return &preference.Spec, unlessKept(ref, obj), nil
	}
	return nil, nil, wrongKind(ref, obj, kinds)
}

// unlessKept is obj, or nil where a revision holds it already.
func unlessKept(ref Reference, obj client.Object) client.Object {
	if ref.Revision != "" {
		return nil
	}
	return obj
}

func wrongKind(ref Reference, obj client.Object, kinds string) error {
	if ref.Revision == "" {
		return errors.New(kinds)
	}
	return fmt.Errorf("ControllerRevision %s holds a %s: %s", ref.Revision, obj.GetObjectKind().GroupVersionKind().Kind, kinds)
}

// object reads what ref names; unknown is what is said of a kind that there is not.
func (r Resolver) object(ctx context.Context, namespace string, ref Reference, unknown string) (client.Object, error) {
	if ref.Revision != "" {
		return r.kept(ctx, namespace, ref.Revision)
	}
	obj := newObject(ref.Kind)
	if obj == nil {
		return nil, errors.New(unknown)
	}
	key := client.ObjectKey{Name: ref.Name}
	if !ofCluster(ref.Kind) {
		key.Namespace = namespace
	}
	err := r.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s %s not found; create it, or name one that `kubectl get %s` lists: %w", ref.Kind, ref.Name, strings.ToLower(ref.Kind), err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", ref.Kind, ref.Name, err)
	}
	return obj, nil
}

// newObject is an empty object of the kind; nil when there is no such kind.
func newObject(kind string) client.Object {
	switch {
	case isKind(kind, KindClusterInstancetype):
		return &v1beta1.VirtualMachineClusterInstancetype{}
	case isKind(kind, KindInstancetype):
		return &v1beta1.VirtualMachineInstancetype{}
	case isKind(kind, KindClusterPreference):
		return &v1beta1.VirtualMachineClusterPreference{}
	case isKind(kind, KindPreference):
		return &v1beta1.VirtualMachinePreference{}
	}
	return nil
}

// isKind compares as the field does: without case, and plural as well.
func isKind(kind, want string) bool {
	return strings.EqualFold(kind, want) || strings.EqualFold(kind, want+"s")
}
