package volumemigration

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// AnnotationRecord on a claim says what was copied onto it last: a Record as JSON. The pod that copies has it too.
const AnnotationRecord = names.Domain + "migrated-from"

// Move is the copy of one volume's disk.
type Move struct {
	Volume string
	// From and To are the names of claims.
	From, To string
	// Generation is the Origin's.
	Generation int64
}

// Moves are what vm's note asks for, in the order of its volumes.
func Moves(vm *virtv1.VirtualMachine) ([]Move, error) {
	note, err := NoteOf(vm)
	if err != nil {
		return nil, err
	}
	var all []Move
	for _, volume := range volumesOf(vm) {
		origin, noted := note[volume.Name]
		if to := ClaimOf(&volume); noted && to != "" {
			all = append(all, Move{Volume: volume.Name, From: origin.Claim, To: to, Generation: origin.Generation})
		}
	}
	return all, nil
}

// Record says which copy it was that a claim has got.
type Record struct {
	// VM is the uid of the VirtualMachine, Volume the name of its volume, Generation the Move's.
	VM         types.UID `json:"vm"`
	Volume     string    `json:"volume"`
	Generation int64     `json:"generation"`
	// Claim is the source's name, UID its uid: another claim of the name is another disk.
	Claim string    `json:"claim"`
	UID   types.UID `json:"uid"`
}

// record is that of the move's copy from source, which vm has.
func (m Move) record(vm types.UID, source *corev1.PersistentVolumeClaim) Record {
	return Record{VM: vm, Volume: m.Volume, Generation: m.Generation, Claim: m.From, UID: source.UID}
}

// String is the annotation's value.
func (r Record) String() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encoding annotation %s: %w", AnnotationRecord, err)
	}
	return string(text), nil
}

// RecordOf reads the record of a claim or a pod, nil when there is none that can be read: somebody else may have written there.
func RecordOf(annotations map[string]string) *Record {
	record := &Record{}
	if json.Unmarshal([]byte(annotations[AnnotationRecord]), record) != nil {
		return nil
	}
	return record
}

// done reports whether record is of the move's copy for the VM of the uid. The source itself may be gone since.
func (m Move) done(record *Record, vm types.UID) bool {
	return record != nil && record.VM == vm && record.Volume == m.Volume && record.Generation == m.Generation && record.Claim == m.From
}
