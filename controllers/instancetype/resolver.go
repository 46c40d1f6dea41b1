package instancetype

import (
	"context"
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
}

// Resolver finds what VirtualMachines refer to.
type Resolver struct {
	client.Reader
}

// References returns the instance type and the preference that vm names, or that its
// volumes carry the names of. What was inferred before, and stands in vm's status,
// stays: a label that changes later does not change a VM that exists.
func (r Resolver) References(ctx context.Context, vm *virtv1.VirtualMachine) (it, preference Reference, err error) {
	if m := vm.Spec.Instancetype; m != nil {
		it, err = r.reference(ctx, vm, request{
			name: m.Name, kind: m.Kind, volume: m.InferFromVolume, policy: m.InferFromVolumeFailurePolicy,
			nameLabel: api.DefaultInstancetypeLabel, kindLabel: api.DefaultInstancetypeKindLabel,
			defaultKind: KindClusterInstancetype, known: vm.Status.InstancetypeRef,
		})
		if err != nil {
			return it, preference, fmt.Errorf("failure to find instancetype: %w", err)
		}
	}
	if m := vm.Spec.Preference; m != nil {
		preference, err = r.reference(ctx, vm, request{
			name: m.Name, kind: m.Kind, volume: m.InferFromVolume, policy: m.InferFromVolumeFailurePolicy,
			nameLabel: api.DefaultPreferenceLabel, kindLabel: api.DefaultPreferenceKindLabel,
			defaultKind: KindClusterPreference, known: vm.Status.PreferenceRef,
		})
		if err != nil {
			return it, preference, fmt.Errorf("failure to find preference: %w", err)
		}
	}
	return it, preference, nil
}

// request is a matcher of either sort.
type request struct {
	name, kind, volume   string
	policy               *virtv1.InferFromVolumeFailurePolicy
	nameLabel, kindLabel string
	defaultKind          string
	known                *virtv1.InstancetypeStatusRef
}

func (r Resolver) reference(ctx context.Context, vm *virtv1.VirtualMachine, req request) (Reference, error) {
	if req.volume == "" {
		return Reference{Kind: orDefault(req.kind, req.defaultKind), Name: req.name}, nil
	}
	if known := req.known; known != nil && known.InferFromVolume == req.volume && known.Name != "" {
		return Reference{Kind: known.Kind, Name: known.Name, InferredFrom: req.volume}, nil
	}
	name, kind, err := r.infer(ctx, vm, req)
	if err != nil {
		if req.policy != nil && *req.policy == virtv1.IgnoreInferFromVolumeFailure {
			return Reference{}, nil
		}
		return Reference{}, err
	}
	return Reference{Kind: orDefault(kind, req.defaultKind), Name: name, InferredFrom: req.volume}, nil
}

func orDefault(kind, fallback string) string {
	if kind == "" {
		return fallback
	}
	return kind
}

// Instancetype reads the instance type that ref names; nil for none.
func (r Resolver) Instancetype(ctx context.Context, namespace string, ref Reference) (*v1beta1.VirtualMachineInstancetypeSpec, error) {
	switch {
	case ref.Name == "":
		return nil, nil
	case isKind(ref.Kind, KindClusterInstancetype):
		obj := &v1beta1.VirtualMachineClusterInstancetype{}
		return &obj.Spec, r.read(ctx, client.ObjectKey{Name: ref.Name}, ref.Kind, obj)
	case isKind(ref.Kind, KindInstancetype):
		obj := &v1beta1.VirtualMachineInstancetype{}
		return &obj.Spec, r.read(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, ref.Kind, obj)
	}
	return nil, fmt.Errorf("got unexpected kind in InstancetypeMatcher: %s; use %s or %s", ref.Kind, KindInstancetype, KindClusterInstancetype)
}

// Preference reads the preference that ref names; nil for none.
func (r Resolver) Preference(ctx context.Context, namespace string, ref Reference) (*v1beta1.VirtualMachinePreferenceSpec, error) {
	switch {
	case ref.Name == "":
		return nil, nil
	case isKind(ref.Kind, KindClusterPreference):
		obj := &v1beta1.VirtualMachineClusterPreference{}
		return &obj.Spec, r.read(ctx, client.ObjectKey{Name: ref.Name}, ref.Kind, obj)
	case isKind(ref.Kind, KindPreference):
		obj := &v1beta1.VirtualMachinePreference{}
		return &obj.Spec, r.read(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, ref.Kind, obj)
	}
	return nil, fmt.Errorf("got unexpected kind in PreferenceMatcher: %s; use %s or %s", ref.Kind, KindPreference, KindClusterPreference)
}

// isKind compares as the field does: without case, and plural as well.
func isKind(kind, want string) bool {
	return strings.EqualFold(kind, want) || strings.EqualFold(kind, want+"s")
}

func (r Resolver) read(ctx context.Context, key client.ObjectKey, kind string, obj client.Object) error {
	err := r.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %s not found; create it, or name one that `kubectl get %s` lists: %w", kind, key.Name, strings.ToLower(kind), err)
	}
	if err != nil {
		return fmt.Errorf("reading %s %s: %w", kind, key.Name, err)
	}
	return nil
}
