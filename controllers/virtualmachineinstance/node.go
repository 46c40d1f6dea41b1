package virtualmachineinstance

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/node"
	"github.com/slipway-vm/slipway/internal/steps"
)

// noteLostNode ends a VMI whose node is gone, or has been silent for so long that the
// cluster gives its pods up too. A node that only lost its virt-handler is not lost:
// its guests run on. The VMI's finalizer still waits for the pod to go, so that no
// second guest starts on disks that the first may be writing.
func (r *Reconciler) noteLostNode(ctx context.Context, s *scope) error {
	name := s.vmi.Status.NodeName
	if name == "" || s.vmi.IsFinal() {
		return nil
	}
	n := &corev1.Node{}
	err := r.Get(ctx, client.ObjectKey{Name: name}, n)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, client.ObjectKey{Name: name}, n)
	}
	switch {
	case apierrors.IsNotFound(err):
		r.end(s, &verdict{phase: virtv1.Failed, reason: reasonUnresponsive, message: fmt.Sprintf("node %s no longer exists", name)})
		return steps.ErrDone
	case err != nil:
		return fmt.Errorf("reading node %s: %w", name, err)
	}
	if node.Ready(n) {
		return nil
	}
	silent := node.Silence(n, s.now)
	if silent < node.Patience {
		s.requeueAfter(node.Patience - silent)
		return nil
	}
	r.end(s, &verdict{phase: virtv1.Failed, reason: reasonUnresponsive, message: fmt.Sprintf(
		"node %s is not ready and its virt-handler has been silent for %s", name, silent.Truncate(time.Second))})
	return steps.ErrDone
}
