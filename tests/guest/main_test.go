package main

import (
	"fmt"
	"testing"

	"github.com/slipway-vm/slipway/tests/guest/recipe"
)

func TestALockThatGuestsShareIsUpdatedOnce(t *testing.T) {
	for _, tc := range []struct {
		names  []string
		update bool
		want   string
	}{
		{nil, true, "tiny true, small false, debian true, "},
		{[]string{"small"}, true, "small true, "},
		{[]string{"tiny", "small"}, false, "tiny false, small false, "},
	} {
		var got string
		for _, s := range plan(recipe.Guests(), tc.names, tc.update) {
			got += fmt.Sprintf("%s %v, ", s.Name, s.update)
		}
		if got != tc.want {
			t.Errorf("of %v with %v: %q, want %q", tc.names, tc.update, got, tc.want)
		}
	}
}
