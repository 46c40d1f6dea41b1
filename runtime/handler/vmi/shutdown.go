package vmi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/runtime/handler/session"
)

// defaultGrace is spec.terminationGracePeriodSeconds where it is not set.
const defaultGrace = 30

// forceDelay is what the launcher gets beyond the grace period to end its guest itself;
// it also covers that the API server cuts the time of a deletion to seconds.
const forceDelay = time.Second

// shutdownTimeout bounds the call by which a launcher is told, which it answers at once. One that
// stands still is killed by the kubelet when the pod's grace period is over.
const shutdownTimeout = 15 * time.Second

// shutDown passes the deletion of a VMI on to its launcher: at first gracefully, by
// force when the grace period is over.
func (r *Reconciler) shutDown(ctx context.Context, s *scope) error {
	if s.vmi.DeletionTimestamp == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, shutdownTimeout)
	defer stop()
	left := graceLeft(s.vmi, time.Now())
	s.lookAgain = max(left, 0) + forceDelay
	var err error
	switch {
	case left <= -forceDelay && s.view.ShuttingDown:
		log.FromContext(ctx).Info("Powering the guest off: its grace period is over")
		err = s.session.Destroy(ctx)
		s.signalled = v1.Deleted
	case !s.view.ShuttingDown:
		log.FromContext(ctx).Info("Asking the launcher to end its guest", "graceLeft", left.String())
		err = s.session.Shutdown(ctx, int64(math.Ceil(max(left, 0).Seconds())))
		s.signalled = v1.ShuttingDown
		if grace(s.vmi) == 0 {
			s.signalled = v1.Deleted
		}
	}
	if err != nil && !errors.Is(err, session.ErrNotConnected) {
		s.signalled = ""
		return fmt.Errorf("ending VMI %s: %w", s.vmi.Name, err)
	}
	return fmt.Errorf("%w for the guest to end", errWait)
}

func grace(vmi *v1.VirtualMachineInstance) time.Duration {
	seconds := int64(defaultGrace)
	if set := vmi.Spec.TerminationGracePeriodSeconds; set != nil {
		seconds = *set
	}
	return time.Duration(seconds) * time.Second
}

// graceLeft is the rest of the grace period of a VMI that is being deleted.
func graceLeft(vmi *v1.VirtualMachineInstance, now time.Time) time.Duration {
	return vmi.DeletionTimestamp.Add(grace(vmi)).Sub(now)
}
