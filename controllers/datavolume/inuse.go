package datavolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
)

// ReasonInUse is why no image can be sent to a claim that pods use.
const ReasonInUse = "UploadTargetInUse"

// Consumer says, past the cache, that a pod uses claim, below which an image would be written; "" when none does.
// The pod that filler has, the DataVolume of that uid which fills claim, does not count.
func Consumer(ctx context.Context, live client.Reader, claim *corev1.PersistentVolumeClaim, filler types.UID) (string, error) {
	var pods corev1.PodList
	if err := live.List(ctx, &pods, client.InNamespace(claim.Namespace)); err != nil {
		return "", fmt.Errorf("looking for pods that use claim %s: %w", claim.Name, err)
	}
	user := population.Consumer(pods.Items, claim, filler)
	if user == "" {
		return "", nil
	}
	return fmt.Sprintf("pod %s/%s using PersistentVolumeClaim %s; an image can be sent once it has ended", claim.Namespace, user, claim.Name), nil
}

// checkUnused ends the pass on a target of an upload that a pod uses, perhaps that which got it bound. A claim with a
// source is filled all the same: its consumer is there from the start.
func (r *Reconciler) checkUnused(ctx context.Context, s *scope) error {
	if !s.inPlace() || population.Source(s.claim) != population.Target {
		return nil
	}
	used, err := Consumer(ctx, r.live, s.claim, s.dv.UID)
	if err != nil || used == "" {
		return err
	}
	s.waiting, s.result.RequeueAfter = &obstacle{ReasonInUse, used}, takenRetry
	if err := r.noteServer(ctx, s, false); err != nil {
		return err
	}
	return steps.ErrDone
}
