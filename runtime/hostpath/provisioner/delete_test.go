package provisioner

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// volumesOf is a driver whose node has one pool, and counts what it is to delete.
type volumesOf struct {
	Volumes

	pool    string
	deleted []string
}

func (v *volumesOf) HasPool(pool string) error {
	if pool != v.pool {
		return status.Error(codes.FailedPrecondition, "the pool is not here")
	}
	return nil
}

func (v *volumesOf) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	v.deleted = append(v.deleted, r.GetVolumeId())
	return &csi.DeleteVolumeResponse{}, nil
}

func TestAVolumeOfAPoolThatIsNotKnownIsNotTakenForDeleted(t *testing.T) {
	driver := &volumesOf{}
	p := New(nil, nil, driver, Options{})
	volume := &corev1.PersistentVolume{}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{VolumeHandle: "pvc-1", VolumeAttributes: map[string]string{"storagePool": "fast"}}
	if err := p.Delete(t.Context(), volume); err == nil || err.Error() != "the pool is not here" || len(driver.deleted) > 0 {
		t.Errorf("got %v, deleted %v", err, driver.deleted)
	}
	driver.pool = "fast"
	check(t, p.Delete(t.Context(), volume))
	volume.Spec.CSI.VolumeAttributes = nil // made by hand
	check(t, p.Delete(t.Context(), volume))
	if len(driver.deleted) != 2 {
		t.Errorf("deleted %v", driver.deleted)
	}
}
