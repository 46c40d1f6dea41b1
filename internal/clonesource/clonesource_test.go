package clonesource_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-vm/slipway/internal/clonesource"
)

func TestAMarkNamesOneSource(t *testing.T) {
	key := types.NamespacedName{Namespace: "images", Name: "base"}
	odd := types.NamespacedName{Namespace: "volumesnapshots", Name: "base"}
	for want, source := range map[string]*clonesource.Source{
		"images/base": {Claim: key}, "volumesnapshots/images/base": {Snapshot: key},
		"volumesnapshots/base": {Claim: odd}, "volumesnapshots/volumesnapshots/base": {Snapshot: odd},
	} {
		mark := source.Mark()
		if mark != want {
			t.Errorf("the mark of %s is %q, want %q", source, mark, want)
		}
		if back := clonesource.FromMark(mark); back == nil || back.Key() != source.Key() || back.InSnapshot() != source.InSnapshot() {
			t.Errorf("%q is read as %v", mark, back)
		}
	}
	for _, bad := range []string{"", "base", "/base", "images/", "a/b/c", "volumesnapshots/a/b/c"} {
		if source := clonesource.FromMark(bad); source != nil {
			t.Errorf("%q is read as %v", bad, source)
		}
	}
}
