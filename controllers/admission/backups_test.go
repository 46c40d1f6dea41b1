package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/slipway-vm/slipway/internal/backup"
)

func TestUsersAskNoMachineForABackup(t *testing.T) {
	asked, other := map[string]string{backup.AnnotationRequest: "{}"}, map[string]string{"note": "x"}
	for name, c := range map[string]struct {
		now, before map[string]string
		want        int
	}{
		"nothing is said":  {now: other},
		"it is asked for":  {now: asked, want: 1},
		"it was asked for": {now: asked, before: asked},
		"it is taken away": {now: other, before: asked, want: 1},
	} {
		if errs := backupRequest(c.now, c.before, field.NewPath("metadata", "annotations")); len(errs) != c.want {
			t.Errorf("%s: got %v", name, errs)
		}
	}
}
