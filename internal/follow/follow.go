// Package follow tells a program what an object says that it is configured by, from its start and whenever that changes.
package follow

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object has apply called with the one object of kind's type, as often as it changes, and with nil once it has gone; from
// when mgr runs on, also while another process leads.
func Object(mgr ctrl.Manager, kind client.Object, apply func(object any)) error {
	if err := mgr.Add(&follower{kind: kind, apply: apply, cache: mgr.GetCache()}); err != nil {
		return fmt.Errorf("following %T: %w", kind, err)
	}
	return nil
}

// follower is a part of a manager.
type follower struct {
	kind  client.Object
	apply func(any)
	cache cache.Cache
}

// NeedLeaderElection says that those who wait to lead follow, too.
func (f *follower) NeedLeaderElection() bool { return false }

// Start follows until ctx is done.
func (f *follower) Start(ctx context.Context) error {
	informer, err := f.cache.GetInformer(ctx, f.kind)
	if err != nil {
		return fmt.Errorf("watching %T: %w", f.kind, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    f.apply,
		UpdateFunc: func(_, object any) { f.apply(object) },
		DeleteFunc: func(any) { f.apply(nil) },
	})
	if err != nil {
		return fmt.Errorf("watching %T: %w", f.kind, err)
	}
	<-ctx.Done()
	return nil
}
