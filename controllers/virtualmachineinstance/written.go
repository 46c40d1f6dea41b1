package virtualmachineinstance

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lagBound is how long a pass waits for the cache to show what the last one wrote. It soon does; it never does only where
// the API server was restored to an earlier state.
const lagBound = 10 * time.Second

// written remembers what VMIs became by the last write of their status, until the cache shows it. A pass over a VMI as it was before that
// would find the same anew, and write it in vain: the API server answers Conflict.
type written struct {
	mu   sync.Mutex
	last map[client.ObjectKey]write
}

type write struct {
	version string
	at      time.Time
}

// note says that vmi became version.
func (w *written) note(vmi *virtv1.VirtualMachineInstance, version string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[client.ObjectKey]write{}
	}
	w.last[client.ObjectKeyFromObject(vmi)] = write{version, now}
}

// unseen says whether vmi, as the cache has it, is older than what was written.
func (w *written) unseen(vmi *virtv1.VirtualMachineInstance, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(vmi)
	last, ok := w.last[key]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(vmi.ResourceVersion, last.version)
	if err == nil && order < 0 && now.Sub(last.at) < lagBound {
		return true
	}
	delete(w.last, key)
	return false
}

// forget is for a VMI that is gone.
func (w *written) forget(key client.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, key)
}
