package population_test

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/upload"
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
	bound := func(age time.Duration, by string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.CreationTimestamp = "v", metav1.NewTime(time.Now().Add(-age))
			c.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": by}
		}
	}
	for name, c := range map[string]struct {
		change                               func(*corev1.PersistentVolumeClaim)
		source                               string
		undecided, chosen, inPlace, unfilled bool
	}{
		"one that was just bound":    {bound(time.Second, "yes"), "VolumeImportSource", true, false, false, false},
		"one bound long ago":         {bound(time.Hour, "yes"), "VolumeImportSource", false, false, false, false},
		"one just bound by its user": {bound(time.Second, ""), "VolumeImportSource", false, false, false, false},
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

func TestWhoeverUsesAClaimWaitsUntilItIsFilled(t *testing.T) {
	with := func(volume string, notes map[string]string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Annotations = volume, notes }
	}
	for name, c := range map[string]struct {
		change                   func(*corev1.PersistentVolumeClaim)
		awaited, refused, failed bool
	}{
		"unbound":              {with("", nil), true, false, false},
		"its user's volume":    {with("v", nil), false, false, false},
		"bound and refused":    {with("v", map[string]string{population.AnnotationRefused: "prime-1"}), true, true, false},
		"a copy of such":       {with("v", map[string]string{population.AnnotationRefused: "prime-2"}), false, false, false},
		"it failed":            {with("", map[string]string{population.AnnotationFilledBy: "prime-1", "cdi.kubevirt.io/storage.pod.phase": "Failed"}), true, false, true},
		"what it is of failed": {with("", map[string]string{population.AnnotationFilledBy: "prime-2", "cdi.kubevirt.io/storage.pod.phase": "Failed"}), true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := claim(c.change)
			if population.Awaited(got) != c.awaited || population.Refused(got) != c.refused || population.Failed(got) != c.failed {
				t.Errorf("awaited %t, refused %t, failed %t", population.Awaited(got), population.Refused(got), population.Failed(got))
			}
		})
	}
}

// A claim is the target of an upload by its annotation alone, when nobody else fills it.
func TestTargetsOfUploads(t *testing.T) {
	const phase = "cdi.kubevirt.io/storage.pod.phase"
	by := func(kind string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "x", UID: "2", Controller: new(true)}}
		}
	}
	noted := func(notes map[string]string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { maps.Copy(c.Annotations, notes) }
	}
	chosen := map[string]string{population.AnnotationFilledBy: "prime-1", population.AnnotationUse: "false"}
	for name, c := range map[string]struct {
		change                       func(*corev1.PersistentVolumeClaim)
		source                       string
		undecided, unfilled, awaited bool
	}{
		"it has no volume":     {noted(nil), population.Target, true, false, true},
		"it is bound for long": {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }, population.Target, true, false, true},
		"it is looked at":      {noted(chosen), population.Target, false, true, true},
		"it is whole": {func(c *corev1.PersistentVolumeClaim) {
			noted(chosen)(c)
			c.Annotations[phase] = "Succeeded"
		}, population.Target, false, false, false},
		"CDI has filled it":    {noted(map[string]string{phase: "Succeeded"}), population.Target, false, false, false},
		"CDI had begun":        {noted(map[string]string{phase: "Running"}), population.Target, true, false, true},
		"a StatefulSet has it": {by("StatefulSet"), population.Target, true, false, true},
		"a DataVolume has it":  {by("DataVolume"), "", false, false, false},
		"another claim has it": {by("PersistentVolumeClaim"), "", false, false, false},
		"it is a clone": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
		}, "", false, false, false},
		"it has another source": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = claim(func(*corev1.PersistentVolumeClaim) {}).Spec.DataSourceRef
		}, "VolumeImportSource", true, false, true},
		"it is none any more": {func(c *corev1.PersistentVolumeClaim) { c.Annotations = maps.Clone(chosen) }, population.Target, false, true, true},
		"it never was one":    {func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, "", false, false, false},
		"its copy is none":    {func(c *corev1.PersistentVolumeClaim) { c.Annotations, c.UID = maps.Clone(chosen), "2" }, "", false, false, false},
		"it was whole before": {func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{population.AnnotationFilledBy: "prime-1", population.AnnotationUse: "false", phase: "Succeeded"}
		}, "", false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := claim(func(made *corev1.PersistentVolumeClaim) {
				made.Spec.DataSourceRef, made.Annotations = nil, map[string]string{upload.AnnotationTarget: ""}
				c.change(made)
			})
			if s := population.Source(got); s != c.source {
				t.Errorf("its source is %q, want %q", s, c.source)
			}
			if population.Undecided(got) != c.undecided || population.Unfilled(got) != c.unfilled || population.Awaited(got) != c.awaited {
				t.Errorf("undecided %t, unfilled %t, awaited %t", population.Undecided(got), population.Unfilled(got), population.Awaited(got))
			}
			if population.Withdrawn(got) != (name == "it is none any more") {
				t.Errorf("withdrawn %t", population.Withdrawn(got))
			}
		})
	}
}
