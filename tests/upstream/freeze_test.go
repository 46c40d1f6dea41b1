//go:build e2e

package upstream

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// freeze holds the guest's file systems still, until the time is over that the client gave.
func (w *world) freeze(t *testing.T) {
	for limit := 10 * time.Second; ; limit *= 2 { // until it is enough for a busy machine to say so
		must(t, w.client.VirtualMachineInstance(w.ns).Freeze(t.Context(), name, limit))
		seen := w.frozen(t, "frozen", limit)
		if !w.frozen(t, "", limit+boundChange) {
			t.Fatalf("the file systems are still frozen, which were to be so for %s", limit)
		}
		if seen {
			return
		}
		if limit > boundChange {
			t.Fatalf("the file systems are not frozen, which were to be so for %s", limit)
		}
	}
}

// frozen waits until the VMI says that its guest's file systems are so, and reports whether it does within bound.
func (w *world) frozen(t *testing.T, want string, bound time.Duration) bool {
	t.Helper()
	for deadline := time.Now().Add(bound); ; time.Sleep(time.Second) {
		vmi, err := w.client.VirtualMachineInstance(w.ns).Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		if vmi.Status.FSFreezeStatus == want {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}
