package modifydataobject

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestTimedOut(t *testing.T) {
	over, cancel := options{timeout: time.Nanosecond}.bounded(t.Context())
	defer cancel()
	<-over.Done()
	call := fmt.Errorf("getting DataVolume a: %w", context.DeadlineExceeded)
	for name, test := range map[string]struct {
		over bool
		err  error
		want string
	}{
		"in the midst of a call":    {true, call, "timed out waiting for the condition: getting DataVolume a: context deadline exceeded"},
		"said already":              {true, fmt.Errorf("%w: it was last seen", errTimeout), "timed out waiting for the condition: it was last seen"},
		"an error of another cause": {false, errors.New("forbidden"), "forbidden"},
	} {
		ctx := t.Context()
		if test.over {
			ctx = over
		}
		if got := timedOut(ctx, test.err); got.Error() != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
	if err := timedOut(over, nil); err != nil {
		t.Error(err)
	}
}

func TestDecode(t *testing.T) {
	object, err := decode("apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {generateName: a-}\nspec: {source: {blank: {}}}\n")
	if err != nil || object.GetGenerateName() != "a-" {
		t.Fatal(object, err)
	}
	for manifest, want := range map[string]string{
		"kind: Pod\napiVersion: v1\n":                                                         "could not identify data object, wrong group or kind",
		"apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {}\n":               "invalid: metadata.name: Required value: name",
		"metadata: {name: a}\n":                                                               "could not read data object manifest",
		"apiVersion: unsupported\nkind: DataSource\n":                                         "could not identify data object, wrong group or kind",
		"apiVersion: cdi.kubevirt.io/v1beta1\nkind: unsupported\n":                            "could not identify data object, wrong group or kind",
		"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n":                                  "could not identify data object, wrong group or kind",
		"apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {name: a}\nspce: 1": "unknown field",
		"{":  "could not read data object manifest",
		"ab": "could not read data object manifest",
	} {
		if _, err := decode(manifest); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", manifest, err, want)
		}
	}
}
