package datavolume

import (
	"time"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/progress"
)

// NewReconciler is a Reconciler that reads from cached, which may lag behind live.
func NewReconciler(cached client.Client, live client.Reader) *Reconciler {
	return &Reconciler{
		Client: cached, live: live, events: events.NewFakeRecorder(100),
		options: Options{ImporterImage: "registry.local/slipway:test"}, listeners: progress.New(nil), now: time.Now,
	}
}

// SetupAt is SetupWithManager for tests whose time is now.
func SetupAt(mgr ctrl.Manager, options Options, now func() time.Time) error {
	return setup(mgr, options, now)
}
