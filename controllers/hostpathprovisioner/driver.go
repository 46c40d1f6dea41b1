package hostpathprovisioner

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// reconcileDriver keeps the CSIDriver object as long as volumes may be in use.
func (r *Reconciler) reconcileDriver(ctx context.Context, s *scope) error {
	if s.ending() {
		return nil
	}
	wanted, current := csiDriver(), &storagev1.CSIDriver{}
	err := r.Get(ctx, client.ObjectKeyFromObject(wanted), current)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("reading the CSIDriver: %w", err)
	case !isOurs(current):
		s.degrade(ReasonConflict, fmt.Sprintf("CSIDriver %s exists and is another operator's: remove that operator, then delete the CSIDriver", wanted.Name))
		return nil
	case sameDriver(wanted.Spec, current.Spec):
		return nil
	default: // most of it cannot be changed, and nothing is lost with it
		if err := r.Delete(ctx, current); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("replacing the CSIDriver: %w", err)
		}
	}
	return apply.Object(ctx, r.Client, wanted, names.ManagerController)
}

// sameDriver compares what this controller sets; the API server adds defaults.
func sameDriver(wanted, current storagev1.CSIDriverSpec) bool {
	return equality.Semantic.DeepDerivative(wanted, current) &&
		len(wanted.VolumeLifecycleModes) == len(current.VolumeLifecycleModes)
}

// removeDriver deletes the CSIDriver object.
func (r *Reconciler) removeDriver(ctx context.Context) error {
	current := &storagev1.CSIDriver{}
	err := r.Get(ctx, client.ObjectKey{Name: names.HostPathDriver}, current)
	if apierrors.IsNotFound(err) || err == nil && !isOurs(current) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the CSIDriver: %w", err)
	}
	if err := r.Delete(ctx, current); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the CSIDriver: %w", err)
	}
	return nil
}
