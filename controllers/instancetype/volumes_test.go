package instancetype_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/instancetype"
)

// A preferred storage class fills what is open; an empty one that is written says that there is to be none.
func TestAPreferredClassFillsWhatIsOpen(t *testing.T) {
	class := instancetype.PreferredClass(&v1beta1.VirtualMachinePreferenceSpec{Volumes: &v1beta1.VolumePreferences{PreferredStorageClassName: "fast"}})
	if instancetype.PreferredClass(nil) != "" || instancetype.PreferredClass(&v1beta1.VirtualMachinePreferenceSpec{}) != "" {
		t.Error("there is a class that nobody prefers")
	}
	for name, c := range map[string]struct {
		spec  cdiv1.DataVolumeSpec
		lacks bool
		want  string
	}{
		"storage without a class": {cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{}}, true, "fast"},
		"storage of a class":      {cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{StorageClassName: new("slow")}}, false, "slow"},
		"storage of no class":     {cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{StorageClassName: new("")}}, false, ""},
		"a claim without a class": {cdiv1.DataVolumeSpec{PVC: &corev1.PersistentVolumeClaimSpec{}}, true, "fast"},
		"a claim of a class":      {cdiv1.DataVolumeSpec{PVC: &corev1.PersistentVolumeClaimSpec{StorageClassName: new("slow")}}, false, "slow"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := instancetype.LacksClass(&c.spec); got != c.lacks {
				t.Errorf("lacks a class: %v", got)
			}
			instancetype.FillClass(&c.spec, class)
			var got *string
			if c.spec.PVC != nil {
				got = c.spec.PVC.StorageClassName
			} else {
				got = c.spec.Storage.StorageClassName
			}
			if got == nil || *got != c.want {
				t.Errorf("got %v, want %q", got, c.want)
			}
		})
	}
}
