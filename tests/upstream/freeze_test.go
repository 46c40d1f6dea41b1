//go:build e2e

package upstream

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// freeze holds the guest's file systems still, until the time is over that the client gave. On a busy machine that may be over
// before the VMI says so: more is given then.
func (w *world) freeze(t *testing.T) {
	told := false
	for limit := 10 * time.Second; !told && limit < boundChange; limit *= 3 {
		must(t, w.client.VirtualMachineInstance(w.ns).Freeze(t.Context(), name, limit))
		_, told = w.freezes(t, "frozen", limit)
	}
	if !told {
		t.Fatal("the VMI never said that its file systems are frozen")
	}
	if status, thawed := w.freezes(t, "", boundChange); !thawed {
		t.Fatalf("the file systems are %q, want none of it", status)
	}
}

// freezes waits until the VMI says that its guest's file systems are so, at most for bound, and returns what it says and whether
// that is it.
func (w *world) freezes(t *testing.T, want string, bound time.Duration) (string, bool) {
	t.Helper()
	limit := time.NewTimer(bound)
	defer limit.Stop()
	for {
		vmi, err := w.client.VirtualMachineInstance(w.ns).Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		if vmi.Status.FSFreezeStatus == want {
			return want, true
		}
		select {
		case <-limit.C:
			return vmi.Status.FSFreezeStatus, false
		case <-time.After(time.Second):
		}
	}
}
