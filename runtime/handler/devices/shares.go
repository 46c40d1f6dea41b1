package devices

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// capacity is how many pods of a node can have a device where the KubeVirt object says nothing: it is shared, the
// number only has to be large enough.
const capacity = 1000

// shares is how many pods of the node can have each device. It may change while devices are served.
type shares struct {
	mu      sync.Mutex
	count   int
	changed chan struct{} // closed when count is another
}

func newShares() *shares { return &shares{count: capacity, changed: make(chan struct{})} }

// now is how many there are, and what is closed when that changes.
func (s *shares) now() (int, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.changed
}

func (s *shares) set(count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if count == s.count {
		return
	}
	s.count = count
	close(s.changed)
	s.changed = make(chan struct{})
}

// sharesOf is what kubevirt says of its virtualMachineInstancesPerNode.
func sharesOf(kubevirt *v1.KubeVirt) int {
	if said := kubevirt.Spec.Configuration.VirtualMachineInstancesPerNode; said != nil && *said >= 1 {
		return *said
	}
	return capacity
}

// follow sets the shares to what the KubeVirt object says, now and whenever it changes. It returns when it has seen
// the object, if there is one.
func (s *shares) follow(ctx context.Context, known cache.Cache) error {
	informer, err := known.GetInformer(ctx, &v1.KubeVirt{})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	take := func(object any) {
		if kubevirt, is := object.(*v1.KubeVirt); is {
			s.set(sharesOf(kubevirt))
		}
	}
	seen, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: take, UpdateFunc: func(_, now any) { take(now) }, DeleteFunc: func(any) { s.set(capacity) },
	})
	if err != nil {
		return fmt.Errorf("watching the KubeVirt object: %w", err)
	}
	toolscache.WaitForCacheSync(ctx.Done(), seen.HasSynced)
	return nil
}
