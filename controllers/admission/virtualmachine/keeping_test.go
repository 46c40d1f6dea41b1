package virtualmachine

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestVolumesAreKeptOrNot(t *testing.T) {
	for value, ok := range map[string]bool{"true": true, "false": true, "yes": false, "": false} {
		vm := fixture.VM("shop", "web")
		vm.Annotations = map[string]string{keep.AnnotationVolumes: value}
		err := Validate(vm, Referred{}, field.NewPath("spec")).ToAggregate()
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "metadata.annotations[slipway-vm.github.io/keep-volumes]: Unsupported value") {
			t.Errorf("%q: %v", value, err)
		}
	}
}
