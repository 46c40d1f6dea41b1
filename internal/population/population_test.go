package population_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/population"
)

// claim has a source of CDI's, and what change makes of it.
func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{
		APIGroup: new("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "debian",
	}}}
	c.UID = "1"
	change(c)
	return c
}

func TestAClaimSaysHowItIsFilled(t *testing.T) {
	chosen := func(use, phase string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{population.AnnotationFilledBy: "prime-1", population.AnnotationUse: use, "cdi.kubevirt.io/storage.pod.phase": phase}
		}
	}
	for name, c := range map[string]struct {
		change                               func(*corev1.PersistentVolumeClaim)
		source                               string
		undecided, chosen, inPlace, unfilled bool
	}{
		"a new claim":                {func(*corev1.PersistentVolumeClaim) {}, "VolumeImportSource", true, false, false, false},
		"one that has a volume":      {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }, "VolumeImportSource", false, false, false, false},
		"one with another claim":     {chosen("true", ""), "VolumeImportSource", false, true, false, false},
		"one that is filled itself":  {chosen("false", ""), "VolumeImportSource", false, true, true, true},
		"one that was filled itself": {chosen("false", "Succeeded"), "VolumeImportSource", false, true, true, false},
		"a copy of a filled one": {func(c *corev1.PersistentVolumeClaim) {
			chosen("false", "")(c)
			c.UID = "2"
		}, "VolumeImportSource", true, false, false, false},
		"a source of somebody else": {func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef.APIGroup = new("example.com") }, "", false, false, false, false},
		"a claim as the source":     {func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef.APIGroup = nil }, "", false, false, false, false},
		"no source":                 {func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef = nil }, "", false, false, false, false},
		"a kind that is no source":  {func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef.Kind = "DataSource" }, "", false, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := claim(c.change)
			if s := population.Source(got); s != c.source {
				t.Errorf("its source is %q, want %q", s, c.source)
			}
			if population.Undecided(got) != c.undecided || population.Chosen(got) != c.chosen || population.InPlace(got) != c.inPlace || population.Unfilled(got) != c.unfilled {
				t.Errorf("undecided %t, chosen %t, in place %t, unfilled %t", population.Undecided(got), population.Chosen(got), population.InPlace(got), population.Unfilled(got))
			}
		})
	}
}
