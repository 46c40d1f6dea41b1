// Package volumemigration holds what moves the disks of a stopped VirtualMachine onto other claims, where that has
// updateVolumesStrategy Migration: the note by which a VM knows that a volume's claim was changed and is yet to be filled from the one
// before, the record of what was copied onto a claim, the pod that copies, and the judgement of what is to be done next.
//
// virt-api writes the note, together with the change; virt-controller takes it off once all is copied, and lets the VM start
// no sooner. So a VM with a note has never run with its new claims, and what is noted as a volume's source holds its disk.
package volumemigration

import (
	"encoding/json"
	"fmt"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// AnnotationNote on a VirtualMachine says from which claims its volumes are yet to be copied: a Note as JSON.
const AnnotationNote = names.Domain + "volumes-to-migrate"

// Origin is where the disk of a volume still is.
type Origin struct {
	// Claim is the name of a claim of the VM's own namespace.
	Claim string `json:"claim"`
	// Generation is that of the VM's spec which first named the volume's present claim. It tells this copy from others between
	// the same two claims, before it and after it.
	Generation int64 `json:"generation"`
}

// Note has the origins of the volumes that are to be copied, by their names.
type Note map[string]Origin

// NoteOf reads the note of vm, which is empty when there is none.
func NoteOf(vm *virtv1.VirtualMachine) (Note, error) {
	text := vm.Annotations[AnnotationNote]
	if text == "" {
		return nil, nil
	}
	note := Note{}
	if err := json.Unmarshal([]byte(text), &note); err != nil {
		return nil, fmt.Errorf("reading annotation %s of VirtualMachine %s/%s: %w", AnnotationNote, vm.Namespace, vm.Name, err)
	}
	return note, nil
}

// Pending reports whether volumes of vm are yet to be copied.
func Pending(vm *virtv1.VirtualMachine) bool { return vm.Annotations[AnnotationNote] != "" }

// Put makes n the note of vm.
func (n Note) Put(vm *virtv1.VirtualMachine) error {
	if len(n) == 0 {
		delete(vm.Annotations, AnnotationNote)
		return nil
	}
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encoding annotation %s of VirtualMachine %s/%s: %w", AnnotationNote, vm.Namespace, vm.Name, err)
	}
	if vm.Annotations == nil {
		vm.Annotations = map[string]string{}
	}
	vm.Annotations[AnnotationNote] = string(text)
	return nil
}

// Asked reports whether spec asks that changed volumes are copied.
func Asked(spec *virtv1.VirtualMachineSpec) bool {
	return spec.UpdateVolumesStrategy != nil && *spec.UpdateVolumesStrategy == virtv1.UpdateVolumesStrategyMigration
}

// Next is the note of vm, into which somebody changes old. What stands in vm itself does not count: it may be made up, or left out by
// who replaces the whole object. A volume that is changed once more is still copied from where its disk is, and one that goes
// back there is not.
func Next(old, vm *virtv1.VirtualMachine) (Note, error) {
	before, err := NoteOf(old)
	if err != nil {
		return nil, err
	}
	next := Note{}
	for _, change := range changes(old, vm) {
		origin, noted := before[change.volume]
		switch {
		case change.was == change.is:
			if noted {
				next[change.volume] = origin
			}
		case change.was == "" || change.is == "" || !Asked(&vm.Spec) || noted && origin.Claim == change.is:
		case noted:
			next[change.volume] = Origin{Claim: origin.Claim, Generation: old.Generation + 1}
		default:
			next[change.volume] = Origin{Claim: change.was, Generation: old.Generation + 1}
		}
	}
	return next, nil
}

// Regained is the note of vm, which is made again of a VM that was deleted before all was copied: its disks are where they were. It has
// no generations yet, so that none of these copies is taken for another.
func Regained(vm *virtv1.VirtualMachine) (Note, error) {
	was, err := NoteOf(vm)
	if err != nil {
		return nil, err
	}
	regained := Note{}
	for name, origin := range was {
		regained[name] = Origin{Claim: origin.Claim}
	}
	return regained, nil
}

// Kept is the note of vm into which virt-controller changes old: it takes off what is done, and where it gives a volume another claim,
// as a restore does, that has the volume's disk already.
func Kept(old, vm *virtv1.VirtualMachine) (Note, error) {
	before, err := NoteOf(old)
	if err != nil {
		return nil, err
	}
	asked, err := NoteOf(vm)
	if err != nil {
		return nil, err
	}
	kept := Note{}
	for _, change := range changes(old, vm) {
		origin, noted := before[change.volume]
		if noted && change.was == change.is && asked[change.volume] == origin {
			kept[change.volume] = origin
		}
	}
	return kept, nil
}

// change is the claim of a volume before and after a change of its VM, "" where it is on none.
type change struct{ volume, was, is string }

// changes are those of the volumes that both have.
func changes(old, vm *virtv1.VirtualMachine) []change {
	var all []change
	for _, volume := range volumesOf(vm) {
		for _, before := range volumesOf(old) {
			if before.Name == volume.Name {
				all = append(all, change{volume.Name, ClaimOf(&before), ClaimOf(&volume)})
			}
		}
	}
	return all
}

func volumesOf(vm *virtv1.VirtualMachine) []virtv1.Volume {
	if vm.Spec.Template == nil {
		return nil
	}
	return vm.Spec.Template.Spec.Volumes
}

// ClaimOf is the claim whose disk volume is, "" for another kind of volume.
func ClaimOf(volume *virtv1.Volume) string {
	switch {
	case volume.DataVolume != nil:
		return volume.DataVolume.Name
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	}
	return ""
}
