package dataimportcron

import (
	"context"
	"fmt"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// releaseClaim deletes the DataVolume and the claim of an import that is kept as a snapshot, once the DataSource
// names that and nobody needs the claim.
func (r *Reconciler) releaseClaim(ctx context.Context, s *scope) error {
	switch {
	case !s.snapshotted() || s.dv == nil && s.claim == nil:
		return nil
	case s.dv != nil && s.dv.DeletionTimestamp != nil || s.dv == nil && s.claim.DeletionTimestamp != nil:
		return nil
	case s.moved:
		s.sooner(goneRetry)
		return nil
	}
	named, err := r.namedNow(ctx, s)
	if err != nil {
		return err
	}
	if named.claim || !named.snapshot {
		s.sooner(lastRetry) // somebody else leads the DataSource
		return nil
	}
	if needed, err := r.claimNeeded(ctx, s); err != nil || needed {
		return err
	}
	if s.dv == nil {
		return r.discard(ctx, s.claim)
	}
	return r.discardImport(ctx, s.dv)
}

// discardImport deletes the DataVolume of an import, and with it the claim.
func (r *Reconciler) discardImport(ctx context.Context, dv *cdiv1.DataVolume) error {
	log.FromContext(ctx).Info("Deleting an import that is kept as a snapshot", "DataVolume", dv.Name)
	if err := r.Delete(ctx, dv, client.Preconditions{UID: &dv.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting DataVolume %s, which is kept as a snapshot: %w", dv.Name, err)
	}
	return nil
}

// claimNeeded reports whether somebody needs the claim of the current import.
func (r *Reconciler) claimNeeded(ctx context.Context, s *scope) (bool, error) {
	if s.claim == nil {
		return false, nil
	}
	free, err := r.unneeded(ctx, s, s.claim)
	return len(free) == 0, err
}
