package cached

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
)

func TestTheCacheHoldsOnlyWhatBearsALabel(t *testing.T) {
	for _, name := range []string{names.LabelPod, datavolume.LabelCloneFor} {
		selector := labelled(name)
		if !selector.Matches(labels.Set{name: "x"}) || selector.Matches(labels.Set{"app": "x"}) {
			t.Errorf("the selector of %s is %q", name, selector)
		}
	}
}
