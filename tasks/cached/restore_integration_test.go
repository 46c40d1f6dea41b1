//go:build integration

package cached_test

import (
	"fmt"
	"strings"
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tasks/declare/rehearsal"
)

// restoreKilled kills the pod that restores a chain, at each of its writes: the retry restores the same volume,
// once and whole, and all entries stay.
func restoreKilled(t *testing.T, r *rehearsal.Stage) {
	s, n := newStage(t, r), 0
	params := s.chain("first", nil)
	s.build(params, "first")
	fresh := func(*testing.T) rehearsal.Run {
		n++
		return rehearsal.Run{Task: s.restore, Namespace: s.namespace, Name: fmt.Sprintf("restore-%d", n), UID: fmt.Sprintf("uid-restore-%d", n), Params: params}
	}
	r.Killed(t, fresh, func(t *testing.T, run rehearsal.Run, o rehearsal.Outcome) {
		if o.Err != nil || o.Results["importCached"] != "true" || o.Results["cachedSteps"] != "2" || !strings.HasPrefix(o.Results["volume"], "image-") {
			t.Fatalf("%v, %v\n%s", o.Err, o.Results, o.Log)
		}
		var made cdiv1.DataVolumeList
		s.must(s.List(t.Context(), &made, client.InNamespace(s.namespace), client.MatchingLabels{names.LabelTaskRun: run.UID}))
		if len(made.Items) != 1 || made.Items[0].Name != o.Results["volume"] {
			t.Errorf("the run made %d volumes; its result is %s", len(made.Items), o.Results["volume"])
		}
		if got, want := s.content(o.Results["volume"]), s.file+"\nfirst\nsecond"; got != want {
			t.Errorf("the disk is %q, want %q", got, want)
		}
	})
	if entries := s.entries(); len(entries) != 3 {
		t.Errorf("%d entries are left of 3", len(entries))
	}
	if s.worked.Load() != 2 || s.imports != 1 {
		t.Errorf("the tool ran %d times, %d imports", s.worked.Load(), s.imports)
	}
}
