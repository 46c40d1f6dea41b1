package virtualmachinesnapshot

import (
	"testing"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheClassIsOfTheDriver(t *testing.T) {
	class := func(name, driver, isDefault string) csiv1.VolumeSnapshotClass {
		return csiv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationDefault: isDefault}}, Driver: driver,
		}
	}
	other, one, two, first := class("other", "x", "true"), class("one", "csi", ""), class("two", "csi", "false"), class("first", "csi", "true")
	for name, c := range map[string]struct {
		classes []csiv1.VolumeSnapshotClass
		want    string
		wantErr bool
	}{
		"none":                      {nil, "", false},
		"of another driver":         {[]csiv1.VolumeSnapshotClass{other}, "", false},
		"the only one":              {[]csiv1.VolumeSnapshotClass{other, one}, "one", false},
		"the default of several":    {[]csiv1.VolumeSnapshotClass{one, first, two}, "first", false},
		"several, none the default": {[]csiv1.VolumeSnapshotClass{one, two}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := chosen(c.classes, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi"})
			if got != c.want || (err != nil) != c.wantErr {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
