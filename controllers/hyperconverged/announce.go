package hyperconverged

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

// announceUpdate says that an update begins, before anything is written for it: a pass takes seconds, and whoever
// has put a new operator in place and waits until all is well would meanwhile read the former one's word.
func (r *Reconciler) announceUpdate(ctx context.Context, s *scope) error {
	status, begins := announcement(s.hco, r.Options.Version, metav1.NewTime(r.Clock()))
	if !begins {
		return nil
	}
	if err := r.tell(ctx, s.hco, status); err != nil {
		return fmt.Errorf("announcing the update: %w", err)
	}
	s.hco.Status = status
	return nil
}

// announcement is hco's status when version begins to update what another one has left well.
func announcement(hco *hcov1.HyperConverged, version string, now metav1.Time) (status hcov1.HyperConvergedStatus, begins bool) {
	from := installed(hco.Status.Versions)
	if from == "" || from == version || !meta.IsStatusConditionTrue(hco.Status.Conditions, "ReconcileComplete") ||
		meta.IsStatusConditionTrue(hco.Status.Conditions, "Progressing") {
		return status, false
	}
	status = *hco.Status.DeepCopy()
	for kind, answer := range map[string]bool{"Progressing": true, "Upgradeable": false} {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: asStatus(answer), Reason: ReasonUpdating, Message: fmt.Sprintf("Updating from %s to %s", from, version),
			ObservedGeneration: hco.Generation, LastTransitionTime: now,
		})
	}
	status.SystemHealthStatus = hcov1.HealthWarning
	return status, true
}

// installed is the version that was last installed as a whole, empty before there was one.
func installed(versions []hcov1.Version) string {
	for _, v := range versions {
		if v.Name == operatorVersion {
			return v.Version
		}
	}
	return ""
}
