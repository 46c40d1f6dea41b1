package stepcache

import (
	"time"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewReconciler makes one for single passes, with a clock; it sees what c sees.
func NewReconciler(c client.Client, live client.Reader, recorder events.EventRecorder, now func() time.Time) *Reconciler {
	return &Reconciler{Client: c, live: live, policies: live, events: recorder, now: now}
}
