package stepcache

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestNamespacesThatAreLookedAt(t *testing.T) {
	for _, c := range []struct {
		value string
		want  []string
	}{{"", nil}, {"images", []string{"images"}}, {" images ,base-images,", []string{"images", "base-images"}}} {
		if got, err := ParseFrom(c.value); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, %v", c.value, got, err)
		}
	}
	for _, value := range []string{"Images", "a/b", "images;base", "*"} {
		if _, err := ParseFrom(value); err == nil || !strings.Contains(err.Error(), `from: "`) {
			t.Errorf("%q: %v", value, err)
		}
		if _, err := ParsePolicy(map[string]string{ConfigFrom: value}); err == nil {
			t.Errorf("%q passed in the ConfigMap", value)
		}
	}
	if p, err := ParsePolicy(map[string]string{ConfigFrom: "images", ConfigCount: "3"}); err != nil || p.Count != 3 {
		t.Errorf("got %+v, %v", p, err)
	}
}

// An entry that was brought has the key, content and age of the one that it comes from.
func TestABroughtEntryIsItsSource(t *testing.T) {
	filled, now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	there := &Entry{
		Namespace: "images", Name: "entry", Key: mustKey(t, newStep(nil)), Step: "virt-customize", Digest: "slipway1:11", Filled: filled,
		Size: 1 << 30, Class: "fast", Mode: corev1.PersistentVolumeBlock, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}
	dv := buildBrought(there, Run{Namespace: "builds", Name: "run", UID: "1"}, now)
	if dv.Namespace != "builds" || dv.Spec.Source.PVC.Namespace != "images" || dv.Spec.Source.PVC.Name != "entry" {
		t.Errorf("the clone is %+v", dv)
	}
	e, ok := newEntry(dv)
	if !ok || e.Key != there.Key || e.Digest != there.Digest || !e.Filled.Equal(filled) || !e.Used.Equal(now) || e.Size != there.Size ||
		e.Class != there.Class || e.Mode != there.Mode || e.From != "images/entry" || e.State != Filling {
		t.Errorf("the entry is %+v, %v", e, ok)
	}
}
