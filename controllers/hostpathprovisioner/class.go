package hostpathprovisioner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// annotationDefault marks the class of claims that name none.
const annotationDefault = "storageclass.kubernetes.io/is-default-class"

// reconcileClasses brings the StorageClasses to what the pools ask for. The first is the
// cluster's default when there is no other and nobody said that it is not.
func (r *Reconciler) reconcileClasses(ctx context.Context, s *scope) error {
	var existing storagev1.StorageClassList
	if err := r.List(ctx, &existing); err != nil {
		return fmt.Errorf("listing storage classes: %w", err)
	}
	wanted := storageClasses(s.object.Spec)
	if s.deleting() {
		wanted = nil
	}
	for i, class := range wanted {
		current := find(existing.Items, class.Name)
		if i == 0 && !needsDefault(s.object.Spec) && shouldBeDefault(existing.Items, current) {
			class.Annotations = map[string]string{annotationDefault: "true"}
		}
		if err := r.applyClass(ctx, s, class, current); err != nil {
			return err
		}
	}
	for i := range existing.Items {
		class := &existing.Items[i]
		if !isOurs(class) || contains(wanted, class.Name) {
			continue
		}
		if err := r.Delete(ctx, class); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting storage class %s of a pool that is gone: %w", class.Name, err)
		}
	}
	return nil
}

func (r *Reconciler) applyClass(ctx context.Context, s *scope, class, current *storagev1.StorageClass) error {
	switch {
	case current == nil:
	case !isOurs(current) && sameVolumes(class, current):
		return nil // somebody made the class by hand; it does the same
	case !isOurs(current):
		s.degrade(ReasonConflict, fmt.Sprintf("storage class %s exists and is not for pool %s: delete or rename it", class.Name, class.Parameters[parameterPool]))
		return nil
	case !sameVolumes(class, current): // what cannot be changed; volumes made before stay as they are
		if err := r.Delete(ctx, current); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("replacing storage class %s: %w", class.Name, err)
		}
	case equality.Semantic.DeepEqual(class.AllowedTopologies, current.AllowedTopologies) &&
		equality.Semantic.DeepEqual(class.AllowVolumeExpansion, current.AllowVolumeExpansion) && within(class.Annotations, current.Annotations):
		return nil
	}
	err := apply.Object(ctx, r.Client, class, names.ManagerController)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		s.degrade(ReasonConflict, err.Error())
		return nil
	}
	return err
}

// sameVolumes tells whether two classes make the same volumes, of what cannot be changed in a class.
func sameVolumes(a, b *storagev1.StorageClass) bool {
	return a.Provisioner == b.Provisioner && maps.Equal(a.Parameters, b.Parameters) &&
		equality.Semantic.DeepEqual(a.ReclaimPolicy, b.ReclaimPolicy) && equality.Semantic.DeepEqual(a.VolumeBindingMode, b.VolumeBindingMode)
}

func shouldBeDefault(all []storagev1.StorageClass, current *storagev1.StorageClass) bool {
	if current != nil && current.Annotations[annotationDefault] != "" {
		return current.Annotations[annotationDefault] == "true"
	}
	for i := range all {
		if all[i].Annotations[annotationDefault] == "true" {
			return false
		}
	}
	return true
}

// needsDefault tells whether a pool lies on claims of the cluster's default class, which then cannot be made of it.
func needsDefault(spec hppv1beta1.HostPathProvisionerSpec) bool {
	return slices.ContainsFunc(spec.StoragePools, func(p hppv1beta1.StoragePool) bool {
		return p.PVCTemplate != nil && p.PVCTemplate.StorageClassName == nil
	})
}

func within(part, whole map[string]string) bool {
	for key, value := range part {
		if whole[key] != value {
			return false
		}
	}
	return true
}

func find(classes []storagev1.StorageClass, name string) *storagev1.StorageClass {
	for i := range classes {
		if classes[i].Name == name {
			return &classes[i]
		}
	}
	return nil
}

func contains(classes []*storagev1.StorageClass, name string) bool {
	for _, class := range classes {
		if class.Name == name {
			return true
		}
	}
	return false
}
