package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestAPassEndsWithTheStepThatEndsIt(t *testing.T) {
	failure := errors.New("broken")
	for name, c := range map[string]struct {
		second error
		want   error
		did    string
	}{
		"all steps are done":          {nil, nil, "first second third"},
		"a step ends the pass":        {ErrDone, nil, "first second"},
		"a step ends it, and says so": {fmt.Errorf("waiting: %w", ErrDone), nil, "first second"},
		"a step fails":                {failure, failure, "first second"},
	} {
		t.Run(name, func(t *testing.T) {
			step := func(name string, err error) func(context.Context, *[]string) error {
				return func(_ context.Context, did *[]string) error {
					*did = append(*did, name)
					return err
				}
			}
			var did []string
			err := Run(t.Context(), &did, []func(context.Context, *[]string) error{step("first", nil), step("second", c.second), step("third", nil)})
			if got := strings.Join(did, " "); !errors.Is(err, c.want) || got != c.did {
				t.Errorf("did %s and returned %v; want %s and %v", got, err, c.did, c.want)
			}
		})
	}
}
