// Package steps runs one pass of a reconciler: a list of steps in a visible order.
package steps

import (
	"context"
	"errors"
)

// ErrDone ends a pass without a failure: what the step found leaves nothing to do for those after it.
var ErrDone = errors.New("nothing more to do in this pass")

// Run does the steps of list in their order until one ends the pass or fails, and returns the failure.
func Run[Scope any](ctx context.Context, scope Scope, list []func(context.Context, Scope) error) error {
	for _, step := range list {
		if err := step(ctx, scope); errors.Is(err, ErrDone) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}
