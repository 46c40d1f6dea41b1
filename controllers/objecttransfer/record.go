package objecttransfer

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// record is what is moved, as it was when the transfer began: status.data has it, for its objects are deleted.
type record struct {
	dv      *cdiv1.DataVolume // nil where a claim is moved
	claim   *corev1.PersistentVolumeClaim
	volume  string
	reclaim corev1.PersistentVolumeReclaimPolicy
}

func newRecord(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) *record {
	rec := &record{claim: claim.DeepCopy(), volume: volume.Name, reclaim: volume.Spec.PersistentVolumeReclaimPolicy}
	rec.claim.ManagedFields, rec.claim.Status = nil, corev1.PersistentVolumeClaimStatus{}
	delete(rec.claim.Annotations, AnnotationName)
	if dv != nil {
		rec.dv = dv.DeepCopy()
		rec.dv.ManagedFields, rec.dv.Status = nil, cdiv1.DataVolumeStatus{}
		delete(rec.dv.Annotations, AnnotationName)
	}
	return rec
}

// data is the record as status.data has it.
func (r *record) data() (map[string]string, error) {
	claim, err := json.Marshal(r.claim)
	if err != nil {
		return nil, fmt.Errorf("encoding claim %s: %w", r.claim.Name, err)
	}
	data := map[string]string{dataSource: string(claim), dataVolume: r.volume, dataReclaim: string(r.reclaim)}
	if r.dv == nil {
		return data, nil
	}
	dv, err := json.Marshal(r.dv)
	if err != nil {
		return nil, fmt.Errorf("encoding DataVolume %s: %w", r.dv.Name, err)
	}
	data[dataSource], data[dataBacking], data[dataClaim] = string(dv), string(claim), r.claim.Name
	return data, nil
}

// readRecord reads status.data of a transfer whose source is of kind.
func readRecord(kind string, data map[string]string) (*record, error) {
	rec := &record{volume: data[dataVolume], reclaim: corev1.PersistentVolumeReclaimPolicy(data[dataReclaim])}
	of := dataSource
	if kind == kindDataVolume {
		of = dataBacking
		if err := json.Unmarshal([]byte(data[dataSource]), &rec.dv); err != nil {
			return nil, fmt.Errorf("reading status.data[%s]: %w", dataSource, err)
		}
	}
	if err := json.Unmarshal([]byte(data[of]), &rec.claim); err != nil {
		return nil, fmt.Errorf("reading status.data[%s]: %w", of, err)
	}
	if rec.volume == "" || rec.claim == nil || rec.claim.UID == "" || kind == kindDataVolume && (rec.dv == nil || rec.dv.UID == "") {
		return nil, fmt.Errorf("status.data does not say what is moved; the PersistentVolume, if it was marked already, has label %s", LabelFor)
	}
	return rec, nil
}
