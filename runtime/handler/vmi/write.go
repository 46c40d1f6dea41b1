package vmi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeStatus applies the status of a pass if it says something new, and tells of it
// by events.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	if s.session != nil && s.trouble == nil {
		view := s.session.View()
		s.view.State, s.view.Silence, s.view.Heard = view.State, view.Silence, view.Heard // they may have moved on during the pass
	}
	if err := r.judgeEnd(ctx, s); err != nil {
		return err
	}
	r.tellSignal(s)
	key := client.ObjectKeyFromObject(s.vmi)
	before := r.written.latest(key, s.vmi)
	status := compute(s, before, metav1.NewTime(time.Now()).Rfc3339Copy())
	if status == nil || equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	words := []any{"phase", status.Phase}
	if failed := status.condition(v1.VirtualMachineInstanceReady); status.Phase == v1.Failed && failed != nil {
		words = append(words, "reason", failed.Reason, "message", failed.Message) // the launcher's log goes with its pod
	}
	log.FromContext(ctx).Info("Writing status", words...)
	err := apply.Fields(ctx, r.Client, s.vmi, names.ManagerHandler, map[string]any{"status": status})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is gone, or another of its name came
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing status of VMI %s: %w", s.vmi.Name, err)
	}
	r.written.keep(key, s.vmi, status)
	r.tellPhase(s, before, status)
	r.tellAccess(s, before, status)
	r.tellSilence(s, before, status)
	r.tellDumps(s, before, status)
	r.tellFilesystems(s, before, status)
	return nil
}

// ledger remembers what was written over which version of a VMI, for as long as the
// cache has not caught up with it.
type ledger struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]entry
}

type entry struct {
	uid     types.UID
	version string
	status  *runtimeStatus
}

// latest is the runtime status of vmi as far as it is known: what was written last if
// the cache still shows the version before that, else what the VMI says.
func (l *ledger) latest(key types.NamespacedName, vmi *v1.VirtualMachineInstance) *runtimeStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, found := l.entries[key]; found && e.uid == vmi.UID && e.version == vmi.ResourceVersion {
		return e.status
	}
	return current(vmi)
}

func (l *ledger) keep(key types.NamespacedName, vmi *v1.VirtualMachineInstance, status *runtimeStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries = map[types.NamespacedName]entry{}
	}
	l.entries[key] = entry{uid: vmi.UID, version: vmi.ResourceVersion, status: status}
}

func (l *ledger) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, key)
}
