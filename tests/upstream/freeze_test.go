//go:build e2e

package upstream

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// freeze holds the guest's file systems still, until the time is over that the client gave.
func (w *world) freeze(t *testing.T) {
	must(t, w.client.VirtualMachineInstance(w.ns).Freeze(t.Context(), name, 10*time.Second))
	w.frozen(t, "frozen")
	w.frozen(t, "")
}

// frozen waits until the VMI says that its guest's file systems are so.
func (w *world) frozen(t *testing.T, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), boundChange)
	defer cancel()
	for {
		vmi, err := w.client.VirtualMachineInstance(w.ns).Get(ctx, name, metav1.GetOptions{})
		must(t, err)
		if vmi.Status.FSFreezeStatus == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the file systems are %q, want %q", vmi.Status.FSFreezeStatus, want)
		case <-time.After(time.Second):
		}
	}
}
