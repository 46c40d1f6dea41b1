package instancetype

import (
	"context"
	"errors"
	"fmt"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNothingInferred is of a volume that says nothing of an instance type or a preference. What cannot be read may say something.
var ErrNothingInferred = errors.New("nothing to infer from")

// ErrNotYet is of a volume that may say something when it is filled.
var ErrNotYet = errors.New("it is being imported")

// nothing is an ErrNothingInferred that says why.
func nothing(format string, args ...any) error {
	return &silent{fmt.Sprintf(format, args...)}
}

type silent struct{ why string }

// Error says why.
func (s *silent) Error() string { return s.why }

// Is makes it an ErrNothingInferred.
func (s *silent) Is(target error) bool { return target == ErrNothingInferred }

// infer finds the labels with which the disk behind one of vm's volumes says what it
// was made for: on the claim, the DataVolume, or what it comes from.
func (r Resolver) infer(ctx context.Context, vm *virtv1.VirtualMachine, req request) (name, kind string, err error) {
	s := &search{Resolver: r, req: req}
	if err := s.volume(ctx, vm); err != nil {
		return "", "", fmt.Errorf("inferring from volume %s: %w", req.GetInferFromVolume(), err)
	}
	return s.found[req.nameLabel], s.found[req.kindLabel], nil
}

// search looks for a label, nearest to the volume first. Each of its steps that may go on says whether it has ended.
type search struct {
	Resolver
	req   request
	found map[string]string
}

// in looks at the labels of one object.
func (s *search) in(labels map[string]string) bool {
	if labels[s.req.nameLabel] == "" {
		return false
	}
	s.found = labels
	return true
}

func (s *search) volume(ctx context.Context, vm *virtv1.VirtualMachine) error {
	if vm.Spec.Template == nil {
		return fmt.Errorf("missing virtual machine template")
	}
	volume := s.req.GetInferFromVolume()
	for _, v := range vm.Spec.Template.Spec.Volumes {
		switch {
		case v.Name != volume:
			continue
		case v.PersistentVolumeClaim != nil:
			if found, err := s.labelled(ctx, &corev1.PersistentVolumeClaim{}, vm.Namespace, v.PersistentVolumeClaim.ClaimName); found || err != nil {
				return err
			}
			return s.missing()
		case v.DataVolume != nil:
			return s.dataVolume(ctx, vm, v.DataVolume.Name)
		}
		return nothing("it is neither a persistentVolumeClaim nor a dataVolume")
	}
	return fmt.Errorf("the VM has no such volume")
}

func (s *search) missing() error {
	return nothing("unable to find required %s label on the volume %s; label its PVC, DataVolume or DataSource, or name it in the VM", s.req.nameLabel, s.req.GetInferFromVolume())
}

// labelled looks at the object of that name.
func (s *search) labelled(ctx context.Context, obj client.Object, namespace, name string) (bool, error) {
	if err := s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj); err != nil {
		return false, fmt.Errorf("reading %s %s/%s: %w", wordFor(obj), namespace, name, err)
	}
	return s.in(obj.GetLabels()), nil
}

// wordFor is the kind of obj.
func wordFor(obj client.Object) string {
	switch obj.(type) {
	case *corev1.PersistentVolumeClaim:
		return "PersistentVolumeClaim"
	case *cdiv1.DataVolume:
		return "DataVolume"
	case *cdiv1.DataSource:
		return "DataSource"
	}
	return "VolumeSnapshot"
}

// dataVolume looks at the VM's own template of the DataVolume, at the DataVolume, and at the claim, which has the labels of what was
// imported; then at what they are filled from.
func (s *search) dataVolume(ctx context.Context, vm *virtv1.VirtualMachine, name string) error {
	spec, found := s.template(vm, name)
	if found {
		return nil
	}
	dv := &cdiv1.DataVolume{}
	found, err := s.labelled(ctx, dv, vm.Namespace, name)
	if found || client.IgnoreNotFound(err) != nil {
		return err
	}
	gone := err != nil
	if !gone && spec == nil {
		spec = &dv.Spec
	}
	found, err = s.labelled(ctx, &corev1.PersistentVolumeClaim{}, vm.Namespace, name)
	if found || client.IgnoreNotFound(err) != nil || err != nil && spec == nil {
		return err
	}
	if spec == nil {
		return s.missing()
	}
	filled := dv.Status.Phase == cdiv1.Succeeded || gone && err == nil
	return s.filledFrom(ctx, vm.Namespace, dv, spec, filled)
}

// template looks at the VM's own template of a DataVolume, and returns what it says; nil when there is none.
func (s *search) template(vm *virtv1.VirtualMachine, name string) (*cdiv1.DataVolumeSpec, bool) {
	for i := range vm.Spec.DataVolumeTemplates {
		if template := &vm.Spec.DataVolumeTemplates[i]; template.Name == name {
			return &template.Spec, s.in(template.Labels)
		}
	}
	return nil, false
}

// filledFrom looks at what dv, which may not be there yet, is filled from by spec. The source of a disk that is filled may have gone.
func (s *search) filledFrom(ctx context.Context, namespace string, dv *cdiv1.DataVolume, spec *cdiv1.DataVolumeSpec, filled bool) error {
	found, err := s.source(ctx, namespace, spec)
	switch {
	case found:
		return nil
	case err != nil && (!filled || !absent(err)):
		return err
	case spec.Source != nil && spec.Source.Registry != nil && !filled && comes(dv):
		return fmt.Errorf("%w, which may bring the label %s", ErrNotYet, s.req.nameLabel)
	}
	return s.missing()
}

// absent says whether err is that there is no such object.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// unlessAbsent is err, but for one that there is no such object.
func unlessAbsent(err error) error {
	if absent(err) {
		return nil
	}
	return err
}

// comes says whether dv is being filled without waiting for the VM.
func comes(dv *cdiv1.DataVolume) bool {
	switch dv.Status.Phase {
	case cdiv1.Failed, cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation:
		return false
	}
	return true
}

// source looks at what a DataVolume is filled from.
func (s *search) source(ctx context.Context, namespace string, spec *cdiv1.DataVolumeSpec) (bool, error) {
	if from := spec.Source; from != nil && from.PVC != nil {
		return s.labelled(ctx, &corev1.PersistentVolumeClaim{}, orDefault(from.PVC.Namespace, namespace), from.PVC.Name)
	}
	if from := spec.Source; from != nil && from.Snapshot != nil {
		return s.snapshot(ctx, orDefault(from.Snapshot.Namespace, namespace), from.Snapshot.Name)
	}
	ref := spec.SourceRef
	switch {
	case ref == nil:
		return false, nil
	case ref.Kind != cdiv1.DataVolumeDataSource:
		return false, nothing("sourceRef of kind %s is not a DataSource", ref.Kind)
	}
	return s.dataSource(ctx, ptr.Deref(ref.Namespace, namespace), ref.Name)
}

// dataSource looks at a DataSource, at the one that it refers to, and at the claim or snapshot behind them. What is not there yet, such
// as a golden image before its first import, says nothing.
func (s *search) dataSource(ctx context.Context, namespace, name string) (bool, error) {
	var from cdiv1.DataSourceSource
	for range 2 {
		source := &cdiv1.DataSource{}
		if found, err := s.labelled(ctx, source, namespace, name); found || err != nil {
			return found, err
		}
		from = source.Spec.Source
		if from.DataSource == nil {
			break
		}
		namespace, name = orDefault(from.DataSource.Namespace, namespace), from.DataSource.Name
	}
	var found bool
	var err error
	switch {
	case from.PVC != nil:
		found, err = s.labelled(ctx, &corev1.PersistentVolumeClaim{}, orDefault(from.PVC.Namespace, namespace), from.PVC.Name)
	case from.Snapshot != nil:
		found, err = s.snapshot(ctx, orDefault(from.Snapshot.Namespace, namespace), from.Snapshot.Name)
	}
	return found, unlessAbsent(err)
}

// snapshot looks at a VolumeSnapshot, and at the claim that it was taken of, which may be gone.
func (s *search) snapshot(ctx context.Context, namespace, name string) (bool, error) {
	snapshot := &csiv1.VolumeSnapshot{}
	if found, err := s.labelled(ctx, snapshot, namespace, name); found || err != nil {
		return found, err
	}
	claim := snapshot.Spec.Source.PersistentVolumeClaimName
	if claim == nil {
		return false, nil
	}
	found, err := s.labelled(ctx, &corev1.PersistentVolumeClaim{}, namespace, *claim)
	return found, unlessAbsent(err)
}

func orDefault(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}
