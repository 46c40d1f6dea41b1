package virtualmachineinstance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
)

// Bounds of the addresses of guests: those below are the hypervisor's, the machine's own and the
// node's, the one above is any (vsock(7)).
const (
	minCID = 3
	maxCID = math.MaxUint32 - 1
)

// cids gives guests addresses for sockets of their nodes, each of its own in the cluster. It
// remembers what it gave, since the cache may not show it yet.
type cids struct {
	mu    sync.Mutex
	given map[types.UID]uint32
	// known says that the API server itself was asked what was given before.
	known bool
}

// giveCID gives the VMI its address, once.
func (r *Reconciler) giveCID(ctx context.Context, s *scope) error {
	if !pod.HasVSOCK(s.vmi) || s.wanted.CID != nil {
		return nil
	}
	cid, err := r.newCID(ctx, s.vmi.UID)
	if err != nil {
		return fmt.Errorf("giving %s/%s an address for sockets: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	s.wanted.CID = &cid
	return nil
}

func (r *Reconciler) newCID(ctx context.Context, vmi types.UID) (uint32, error) {
	r.cids.mu.Lock()
	defer r.cids.mu.Unlock()
	if cid, given := r.cids.given[vmi]; given {
		return cid, nil
	}
	var reader client.Reader = r
	if !r.cids.known {
		reader = r.live // the controller before this one may have given addresses that the cache lacks
	}
	list := &virtv1.VirtualMachineInstanceList{}
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the addresses of others: %w", err)
	}
	r.cids.known = true
	given, taken := map[types.UID]uint32{}, map[uint32]bool{}
	for i := range list.Items {
		uid := list.Items[i].UID
		if cid, ok := r.cids.given[uid]; ok { // others have ended
			given[uid], taken[cid] = cid, true
		}
		if cid := list.Items[i].Status.VSOCKCID; cid != nil {
			taken[*cid] = true
		}
	}
	r.cids.given = given
	cid, err := freeCID(taken, minCID+rand.Uint32N(maxCID-minCID+1)) //nolint:gosec // an address is no secret
	if err != nil {
		return 0, err
	}
	r.cids.given[vmi] = cid
	return cid, nil
}

// freeCID is the first address from start on that is not taken. A start at random makes that
// nearly always the first.
func freeCID(taken map[uint32]bool, start uint32) (uint32, error) {
	for cid := start; ; {
		if !taken[cid] {
			return cid, nil
		}
		if cid++; cid > maxCID {
			cid = minCID
		}
		if cid == start {
			return 0, errors.New("none is left")
		}
	}
}

// explainVSOCK is what to add to the scheduler's message when a pod asks for the device in vain.
func (r *Reconciler) explainVSOCK(ctx context.Context) (string, error) {
	nodes := &corev1.NodeList{}
	if err := r.List(ctx, nodes, client.MatchingLabels{virtv1.NodeSchedulable: "true"}); err != nil {
		return "", fmt.Errorf("listing the nodes with VSOCK: %w", err)
	}
	for i := range nodes.Items {
		if offered := nodes.Items[i].Status.Capacity[names.DeviceVhostVSOCK]; !offered.IsZero() {
			return "", nil
		}
	}
	return ". No node has /dev/vhost-vsock (" + names.DeviceVhostVSOCK + "); load the kernel's module vhost_vsock on a node and restart its virt-handler, " +
		"or leave autoattachVSOCK out", nil
}
