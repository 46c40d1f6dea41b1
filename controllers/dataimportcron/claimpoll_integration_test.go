//go:build integration

package dataimportcron_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// TestAnotherClaimOfANameIsANewImage has a claim come, and another one in its place.
func TestAnotherClaimOfANameIsANewImage(t *testing.T) {
	w := start(t)
	w.create("cron", func(cron *cdiv1.DataImportCron) {
		cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "published"}}
	})
	w.until("it says what is missing", func() bool {
		for _, c := range w.cron("cron").Status.Conditions {
			if c.Type == cdiv1.DataImportCronUpToDate {
				return c.Reason == "NoDigest" && strings.Contains(c.Message, "PersistentVolumeClaim published")
			}
		}
		return false
	})
	var before []string
	for range 2 {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "published"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
		w.must(w.Create(t.Context(), claim))
		w.later(2*time.Hour, "", "cron")
		dv := w.importing("cron", before...)
		if from := dv.Spec.Source.PVC; from == nil || from.Name != "published" {
			t.Errorf("what is imported is %+v", dv.Spec.Source)
		}
		before = append(before, string(dv.UID))
		w.must(w.Delete(t.Context(), dv)) // as if it had been given up: an import under way would be awaited
		w.collect("published")
	}
}
