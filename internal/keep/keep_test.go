package keep_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestAVolumeIsTheVMsOrKeptForIt(t *testing.T) {
	vm := fixture.VM("shop", "web")
	vm.UID = "1-2"
	owned, kept := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
	keep.Give(owned, vm)
	vm.Annotations = map[string]string{keep.AnnotationVolumes: "true"}
	keep.Give(kept, vm)
	if !metav1.IsControlledBy(owned, vm) || len(owned.Labels) > 0 || keep.ForAnother(owned, "3-4") {
		t.Errorf("owned is %+v", owned.ObjectMeta)
	}
	if len(kept.OwnerReferences) > 0 || kept.Labels[keep.LabelFor] != "1-2" || keep.ForAnother(kept, "1-2") || !keep.ForAnother(kept, "3-4") {
		t.Errorf("kept is %+v", kept.ObjectMeta)
	}
}

func TestAVMIsRecordedAndMadeAgain(t *testing.T) {
	vm := fixture.VM("shop", "web", fixture.Claim("data", "data"))
	vm.UID, vm.ResourceVersion, vm.Labels = "1-2", "7", map[string]string{"team": "a"}
	vm.Annotations = map[string]string{keep.AnnotationVolumes: "true", keep.AnnotationRecord: "before", corev1.LastAppliedConfigAnnotation: "{}"}
	record, err := keep.Record(vm)
	if err != nil {
		t.Fatal(err)
	}
	if record.Name != "deleted-vm-1-2" || record.Namespace != "shop" || len(record.OwnerReferences) > 0 {
		t.Errorf("the record is %+v", record.ObjectMeta)
	}
	again, err := keep.Again(record)
	if err != nil {
		t.Fatal(err)
	}
	if again.Name != "web" || again.UID != "" || again.ResourceVersion != "" || again.Labels["team"] != "a" || again.Annotations[keep.AnnotationRecord] != record.Name ||
		len(again.Annotations) != 2 || again.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data" {
		t.Errorf("made again is %+v", again)
	}
	record.Labels = nil
	if _, err := keep.Again(record); err == nil {
		t.Error("any revision is taken for a record")
	}
}
