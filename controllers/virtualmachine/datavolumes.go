package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
)

// createDataVolumes creates the DataVolumes of the VM's templates that do not exist. A
// claim of the name counts as one: it outlives a DataVolume that was removed after
// it was filled, and what is on a disk is never replaced. Those of a VM that is being restored are
// changed meanwhile.
func (r *Reconciler) createDataVolumes(ctx context.Context, s *scope) error {
	if s.vm.Status.RestoreInProgress != nil {
		return nil
	}
	for _, template := range s.vm.Spec.DataVolumeTemplates {
		if s.dataVolumes[template.Name] != nil {
			continue
		}
		exists, err := r.claimExists(ctx, s.vm.Namespace, template.Name)
		if err != nil {
			return err
		}
		if exists {
			continue
		}
		class, err := r.preferredClass(ctx, s.vm, &template.Spec)
		if err != nil {
			r.warnOnce(s.vm, reasonDataVolumeFailed, "Error creating DataVolume "+template.Name+": %v", err)
			return fmt.Errorf("creating DataVolume %s/%s: %w", s.vm.Namespace, template.Name, err)
		}
		dv := dataVolume(s.vm, template)
		instancetype.FillClass(&dv.Spec, class)
		err = r.Create(ctx, dv, client.FieldOwner(names.ManagerController))
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if namespace.Ending(err) {
			return nil
		}
		if err != nil {
			r.warnOnce(s.vm, reasonDataVolumeFailed, "Error creating DataVolume "+dv.Name+": %v", err)
			return fmt.Errorf("creating DataVolume %s/%s: %w", dv.Namespace, dv.Name, err)
		}
		s.dataVolumes[dv.Name] = dv
		r.normal(s.vm, reasonDataVolume, "Created DataVolume %s", dv.Name)
	}
	return nil
}

// preferredClass is the storage class that vm's preference has for a DataVolume that names none; empty for the cluster's default. A preference that
// is inferred from the disk is not known before that, and then says nothing of the disk.
func (r *Reconciler) preferredClass(ctx context.Context, vm *virtv1.VirtualMachine, spec *cdiv1.DataVolumeSpec) (string, error) {
	if vm.Spec.Preference == nil || !instancetype.LacksClass(spec) {
		return "", nil
	}
	ref, err := r.resolver.PreferenceOf(ctx, vm)
	if errors.Is(err, instancetype.ErrNothingInferred) || errors.Is(err, instancetype.ErrNotYet) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	preference, _, err := r.resolver.Preference(ctx, vm.Namespace, ref)
	if err != nil {
		return "", err
	}
	return instancetype.PreferredClass(preference), nil
}

func (r *Reconciler) claimExists(ctx context.Context, namespace, name string) (bool, error) {
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.PersistentVolumeClaim{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading PersistentVolumeClaim %s/%s: %w", namespace, name, err)
	}
	return true, nil
}

// dataVolume makes the DataVolume of a template; the VM owns it, so it goes with the VM, unless that keeps its volumes.
func dataVolume(vm *virtv1.VirtualMachine, template virtv1.DataVolumeTemplateSpec) *cdiv1.DataVolume {
	labels := maps.Clone(template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[virtv1.CreatedByLabel] = string(vm.UID)
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        template.Name,
			Namespace:   vm.Namespace,
			Labels:      labels,
			Annotations: maps.Clone(template.Annotations),
		},
		Spec: *template.Spec.DeepCopy(),
	}
	keep.Give(dv, vm)
	return dv
}
