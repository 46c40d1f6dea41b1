// Package served runs what needs a kind that a cluster may not have, or may get or lose
// while the program runs.
package served

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/names"
)

// A run that failed waits from firstRetry, doubled up to lastRetry, for the next, unless the
// definition changes before. The first are soon, for an API server serves a kind a moment
// after it says so; a run of more than lastRetry counts as one that went well.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Kind is a kind that a CustomResourceDefinition serves.
type Kind struct {
	// Definition is the CustomResourceDefinition's name, Version the version that is needed.
	Definition, Version string
}

// state is what counts of a definition.
type state struct{ served, ours bool }

// While runs run as long as the cluster serves kind, each time anew when it comes back or
// changes hands, until ctx ends. Run learns whether the definition is Slipway's. A run
// that fails is logged and tried again.
func While(ctx context.Context, c client.WithWatch, kind Kind, run func(ctx context.Context, ours bool) error) error {
	for {
		seen, err := kind.await(ctx, c, func(s state) bool { return s.served })
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := kind.serve(ctx, c, seen, run); err != nil {
			return err
		}
	}
}

// serve runs run until the definition is no longer as seen.
func (k Kind) serve(ctx context.Context, c client.WithWatch, seen state, run func(context.Context, bool) error) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan error, 1)
	go func() {
		_, err := k.await(serving, c, func(s state) bool { return s != seen })
		stop()
		watched <- err
	}()
	k.retry(serving, func() error { return run(serving, seen.ours) })
	ended := serving.Err() != nil
	stop()
	if err := <-watched; err != nil && ended && ctx.Err() == nil {
		return err
	}
	return nil
}

// retry calls run until it returns no error, or until ctx ends.
func (k Kind) retry(ctx context.Context, run func() error) {
	for delay := firstRetry; ctx.Err() == nil; delay = min(2*delay, lastRetry) {
		began := time.Now()
		err := run()
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastRetry {
			delay = firstRetry
		}
		log.FromContext(ctx).Error(err, "Serving a kind failed, it is tried again", "definition", k.Definition, "after", delay)
		pause(ctx, delay)
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// await watches the definition until it is as wanted.
func (k Kind) await(ctx context.Context, c client.WithWatch, wanted func(state) bool) (state, error) {
	var now state
	err := await.Object(ctx, c, &apiextensionsv1.CustomResourceDefinitionList{}, client.ObjectKey{Name: k.Definition},
		func(live *apiextensionsv1.CustomResourceDefinition, exists bool) (bool, error) {
			if now = (state{}); exists && k.servedBy(live) {
				now = state{served: true, ours: live.Labels[names.LabelManagedBy] == names.ManagedBy}
			}
			return wanted(now), nil
		})
	if err != nil {
		return now, fmt.Errorf("watching definition %s: %w", k.Definition, err)
	}
	return now, nil
}

func (k Kind) servedBy(live *apiextensionsv1.CustomResourceDefinition) bool {
	established := slices.ContainsFunc(live.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	return established && live.DeletionTimestamp == nil && slices.ContainsFunc(live.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == k.Version && v.Served
	})
}
