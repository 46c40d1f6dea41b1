package instancetype

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// infer finds the labels with which the disk behind one of vm's volumes says what it
// was made for: on the claim, the DataVolume, or the DataSource that it comes from.
func (r Resolver) infer(ctx context.Context, vm *virtv1.VirtualMachine, req request) (name, kind string, err error) {
	labels, err := r.labelsOf(ctx, vm, req.volume)
	if err != nil {
		return "", "", fmt.Errorf("inferring from volume %s: %w", req.volume, err)
	}
	for _, set := range labels {
		if set[req.nameLabel] != "" {
			return set[req.nameLabel], set[req.kindLabel], nil
		}
	}
	return "", "", fmt.Errorf("unable to find required %s label on the volume %s; label its PVC, DataVolume or DataSource, or name it in the VM",
		req.nameLabel, req.volume)
}

// labelsOf returns the label sets of what is behind the volume, nearest first.
func (r Resolver) labelsOf(ctx context.Context, vm *virtv1.VirtualMachine, volume string) ([]map[string]string, error) {
	if vm.Spec.Template == nil {
		return nil, fmt.Errorf("missing virtual machine template")
	}
	for _, v := range vm.Spec.Template.Spec.Volumes {
		switch {
		case v.Name != volume:
			continue
		case v.PersistentVolumeClaim != nil:
			return r.claimLabels(ctx, vm.Namespace, v.PersistentVolumeClaim.ClaimName)
		case v.DataVolume != nil:
			return r.dataVolumeLabels(ctx, vm, v.DataVolume.Name)
		}
		return nil, fmt.Errorf("it is neither a persistentVolumeClaim nor a dataVolume")
	}
	return nil, fmt.Errorf("the VM has no such volume")
}

func (r Resolver) claimLabels(ctx context.Context, namespace, name string) ([]map[string]string, error) {
	pvc := &corev1.PersistentVolumeClaim{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pvc); err != nil {
		return nil, fmt.Errorf("reading PersistentVolumeClaim %s/%s: %w", namespace, name, err)
	}
	return []map[string]string{pvc.Labels}, nil
}

// dataVolumeLabels looks at the VM's own template of the DataVolume first, then at the
// DataVolume, and at the claim when there is no DataVolume any more.
func (r Resolver) dataVolumeLabels(ctx context.Context, vm *virtv1.VirtualMachine, name string) ([]map[string]string, error) {
	for _, template := range vm.Spec.DataVolumeTemplates {
		if template.Name == name {
			return r.sourceLabels(ctx, vm.Namespace, template.Labels, template.Spec)
		}
	}
	dv := &cdiv1.DataVolume{}
	err := r.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: name}, dv)
	if apierrors.IsNotFound(err) {
		return r.claimLabels(ctx, vm.Namespace, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading DataVolume %s/%s: %w", vm.Namespace, name, err)
	}
	return r.sourceLabels(ctx, vm.Namespace, dv.Labels, dv.Spec)
}

// sourceLabels adds the labels of what a DataVolume is cloned from.
func (r Resolver) sourceLabels(ctx context.Context, namespace string, own map[string]string, spec cdiv1.DataVolumeSpec) ([]map[string]string, error) {
	sets := []map[string]string{own}
	if source := spec.Source; source != nil && source.PVC != nil {
		more, err := r.claimLabels(ctx, orDefault(source.PVC.Namespace, namespace), source.PVC.Name)
		return append(sets, more...), err
	}
	ref := spec.SourceRef
	if ref == nil {
		return sets, nil
	}
	if ref.Kind != cdiv1.DataVolumeDataSource {
		return nil, fmt.Errorf("sourceRef of kind %s is not a DataSource", ref.Kind)
	}
	source := &cdiv1.DataSource{}
	key := client.ObjectKey{Namespace: ptr.Deref(ref.Namespace, namespace), Name: ref.Name}
	if err := r.Get(ctx, key, source); err != nil {
		return nil, fmt.Errorf("reading DataSource %s: %w", key, err)
	}
	sets = append(sets, source.Labels)
	if pvc := source.Spec.Source.PVC; pvc != nil {
		more, err := r.claimLabels(ctx, orDefault(pvc.Namespace, key.Namespace), pvc.Name)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		sets = append(sets, more...)
	}
	return sets, nil
}
