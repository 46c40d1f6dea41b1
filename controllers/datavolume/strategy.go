package datavolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
)

// noProvisioner is the provisioner of classes whose volumes somebody makes by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// chooseStrategy notes on input which class the clone will have, and how clones onto it are best made: as the CDI object says for all
// classes, else as the class's StorageProfile says. Nothing clones volumes that somebody makes by hand.
func (r *Reconciler) chooseStrategy(ctx context.Context, s *scope, input *claimInput) error {
	name := targetClass(input)
	if name == "" {
		input.Class = nil
	} else if input.Class == nil || input.Class.Name != name {
		var err error
		if input.Class, err = get(ctx, r.Client, types.NamespacedName{Name: name}, &storagev1.StorageClass{}); err != nil {
			return err
		}
	}
	s.class = input.Class
	if input.Class == nil || input.Class.Provisioner == noProvisioner {
		input.Source.driverless = true
		return nil
	}
	profile, err := get(ctx, r.Client, types.NamespacedName{Name: name}, &cdiv1.StorageProfile{})
	if err != nil {
		return err
	}
	if profile != nil {
		input.Strategy, input.SnapshotClass = ptr.Deref(profile.Status.CloneStrategy, ""), ptr.Deref(profile.Status.SnapshotClass, "")
	}
	cdi, err := cdiconfig.Installed(ctx, r.Client)
	if err != nil {
		return err
	}
	if cdi != nil && cdi.Spec.CloneStrategyOverride != nil {
		input.Strategy = *cdi.Spec.CloneStrategyOverride
	}
	return nil
}

// targetClass is the StorageClass that the clone will have, "" when nothing says it.
func targetClass(in *claimInput) string {
	var name *string
	if spec := &in.DataVolume.Spec; spec.PVC != nil {
		name = spec.PVC.StorageClassName
	} else if name = spec.Storage.StorageClassName; name == nil && in.Class != nil {
		name = new(in.Class.Name)
	}
	switch {
	case name != nil:
	case in.Source.class != nil:
		name = in.Source.class
	case in.Class != nil: // the default one
		name = new(in.Class.Name)
	}
	return ptr.Deref(name, "")
}

// driverless reports whether claim has a volume that is no CSI driver's, which nothing can clone.
func (r *Reconciler) driverless(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if claim.Spec.VolumeName == "" {
		return false, nil
	}
	volume, err := get(ctx, r.live, types.NamespacedName{Name: claim.Spec.VolumeName}, &corev1.PersistentVolume{})
	return volume != nil && volume.Spec.CSI == nil, err
}
