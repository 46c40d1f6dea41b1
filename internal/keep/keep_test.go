package keep_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/tests/fixture"
)

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
