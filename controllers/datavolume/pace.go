package datavolume

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/progress"
)

// settle is how long what only conditions say waits to be written: between two phases of an import they turn in quick succession,
// and what comes next is written with them.
const settle = 2 * time.Second

// pace remembers when the status of each DataVolume was written, so that phases are written at once, and what lies between them
// seldom.
type pace struct {
	mu   sync.Mutex
	last map[types.NamespacedName]written
}

// written is the last write of a status.
type written struct {
	uid types.UID // of the DataVolume; another one may have got the name
	at  time.Time // zero for none since the controller began
	// before is the resourceVersion of the DataVolume that it was written onto, was the status that this had, status what was written.
	before      string
	was, status cdiv1.DataVolumeStatus
	// since is when something else was to be written first; zero while there is nothing.
	since time.Time
}

// catchUp gives dv the status that was written last when the cache shows it as it was before that. What is known already is
// not written again then.
func (p *pace) catchUp(dv *cdiv1.DataVolume) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.last[client.ObjectKeyFromObject(dv)]
	if !ok || w.uid != dv.UID || w.at.IsZero() {
		return
	}
	if w.before == dv.ResourceVersion || equality.Semantic.DeepEqual(w.was, dv.Status) { // its annotations may have been written between
		w.status.DeepCopyInto(&dv.Status)
	}
}

// wait is how long status, which is another one than dv's, is yet to wait; zero for writing it now.
func (p *pace) wait(dv *cdiv1.DataVolume, status cdiv1.DataVolumeStatus, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := client.ObjectKeyFromObject(dv)
	w := p.last[key]
	if w.uid != dv.UID {
		w = written{uid: dv.UID}
	}
	if w.since.IsZero() {
		w.since = now
	}
	p.put(key, w)
	due := now
	switch before := dv.Status; {
	case status.Phase != before.Phase || status.ClaimName != before.ClaimName || status.RestartCount != before.RestartCount || erroneous(status):
	case equalConditions(status.Conditions, before.Conditions): // the progress
		due = w.at.Add(progress.Every)
	default:
		due = w.since.Add(settle)
	}
	return max(due.Sub(now), 0)
}

// erroneous reports whether status tells of an error, which nobody is to wait for.
func erroneous(status cdiv1.DataVolumeStatus) bool {
	running := condition(status.Conditions, cdiv1.DataVolumeRunning)
	return running != nil && (running.Reason == reasonError || running.Reason == reasonSourceInUse)
}

// wrote notes that status was written onto dv.
func (p *pace) wrote(dv *cdiv1.DataVolume, status cdiv1.DataVolumeStatus, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(client.ObjectKeyFromObject(dv), written{uid: dv.UID, at: now, before: dv.ResourceVersion, was: *dv.Status.DeepCopy(), status: *status.DeepCopy()})
}

// rest notes that nothing is to be written of dv: what was is no longer so.
func (p *pace) rest(dv *cdiv1.DataVolume) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := client.ObjectKeyFromObject(dv)
	if w, ok := p.last[key]; ok {
		w.since = time.Time{}
		p.last[key] = w
	}
}

func (p *pace) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, key)
}

func (p *pace) put(key types.NamespacedName, w written) {
	if p.last == nil {
		p.last = map[types.NamespacedName]written{}
	}
	p.last[key] = w
}
