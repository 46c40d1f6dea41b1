package virtualmachine

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/hotplug"
	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/internal/keep"
)

// NoteVolumes notes on vm, into which old is changed, which volumes are to be copied, whatever vm itself says. old is nil for a new VM,
// which has none, unless it is one that was deleted and is brought back. own says that virt-controller makes the change.
func NoteVolumes(old, vm *virtv1.VirtualMachine, own bool) error {
	var note volumemigration.Note
	var err error
	switch {
	case old == nil && vm.Annotations[keep.AnnotationRecord] != "":
		note, err = volumemigration.Regained(vm)
	case old == nil:
	case own:
		note, err = volumemigration.Kept(old, vm)
	default:
		note, err = volumemigration.Next(old, vm)
	}
	if err != nil {
		return err
	}
	return note.Put(vm)
}

// Migrated is a volume, at Path, whose disk a change of its VM asks to be copied from the one claim to the other.
type Migrated struct {
	Path     *field.Path
	From, To string
}

// ValidateMigration returns what is wrong with a change of old to vm under updateVolumesStrategy Migration, whose spec is at path, and the
// volumes that it changes. What others do with their claims is not looked at.
func ValidateMigration(old, vm *virtv1.VirtualMachine, path *field.Path) ([]Migrated, field.ErrorList, error) {
	note, err := volumemigration.NoteOf(old)
	if err != nil || old.Spec.Template == nil || vm.Spec.Template == nil {
		return nil, nil, err
	}
	m := migrations{note: note, was: &old.Spec.Template.Spec, is: &vm.Spec.Template.Spec, asked: volumemigration.Asked(&vm.Spec), spec: path}
	for i := range m.is.Volumes {
		m.volume(&m.is.Volumes[i], path.Child("template", "spec", "volumes").Index(i))
	}
	return m.found, m.errs, nil
}

// migrations is a change that is being judged.
type migrations struct {
	note    volumemigration.Note
	was, is *virtv1.VirtualMachineInstanceSpec
	asked   bool
	spec    *field.Path
	found   []Migrated
	errs    field.ErrorList
}

// volume judges a volume as it will be.
func (m *migrations) volume(volume *virtv1.Volume, at *field.Path) {
	m.unfinished(volume, at)
	before := volumeNamed(m.was, volume.Name)
	if before == nil {
		return
	}
	was, is := volumemigration.ClaimOf(before), volumemigration.ClaimOf(volume)
	origin, noted := m.note[volume.Name]
	switch {
	case was == is && noted && !m.asked:
		m.errs = append(m.errs, field.Forbidden(m.spec.Child("updateVolumesStrategy"), fmt.Sprintf(
			"volume %s is being copied from %s to %s; leave it at Migration until that is done, or change the volume back to %s", volume.Name, origin.Claim, is, origin.Claim)))
	case !m.asked || was == is && baseOf(before) == baseOf(volume), noted && origin.Claim == is:
	case was == "" || is == "":
		m.errs = append(m.errs, field.Forbidden(at, fmt.Sprintf(
			"only the disks of claims and DataVolumes are copied, and volume %s is or was of another kind; to replace it, set spec.updateVolumesStrategy to Replacement", volume.Name)))
	default:
		from := was
		if noted {
			from = origin.Claim
		}
		if errs := append(m.kind(before, volume, at), m.target(volume.Name, is, at)...); len(errs) > 0 {
			m.errs = append(m.errs, errs...)
			return
		}
		m.found = append(m.found, Migrated{Path: at, From: from, To: is})
	}
}

// unfinished refuses another volume that has a claim onto which a disk is being copied: what it holds is part of that.
func (m *migrations) unfinished(volume *virtv1.Volume, at *field.Path) {
	claim := volumemigration.ClaimOf(volume)
	for name := range m.note {
		if before := volumeNamed(m.was, name); claim != "" && name != volume.Name && before != nil && volumemigration.ClaimOf(before) == claim {
			m.errs = append(m.errs, field.Forbidden(at, fmt.Sprintf("the disk of volume %s is being copied to %s; wait until that is done, or take another claim", name, claim)))
		}
	}
}

// kind refuses disks of which a copy would be another disk, or which is none.
func (m *migrations) kind(before, volume *virtv1.Volume, at *field.Path) field.ErrorList {
	const instead = "; to replace the volume, set spec.updateVolumesStrategy to Replacement"
	refuse := func(why string) field.ErrorList {
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf("volume %s cannot be copied: %s%s", volume.Name, why, instead))}
	}
	if hotplug.Volume(*before) || hotplug.Volume(*volume) {
		return refuse("it is hotpluggable")
	}
	for _, spec := range []*virtv1.VirtualMachineInstanceSpec{m.was, m.is} {
		for _, files := range spec.Domain.Devices.Filesystems {
			if files.Name == volume.Name {
				return refuse("it is a file system that is shared with the guest by virtiofs")
			}
		}
		switch disk := hotplug.Disk(spec, volume.Name); {
		case disk == nil:
		case ptr.Deref(disk.Shareable, false):
			return refuse("its disk is shareable, so that others may write to it meanwhile")
		case disk.LUN != nil:
			return refuse("its disk is a lun, whose device is more than its content")
		}
	}
	return nil
}

// target refuses a claim as what a volume is copied to that the VM has for something else: nothing is written over.
func (m *migrations) target(volume, claim string, at *field.Path) field.ErrorList {
	refuse := func(other, what string) field.ErrorList {
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf("%s %s volume %s; take another claim for volume %s", claim, what, other, volume))}
	}
	for _, spec := range []*virtv1.VirtualMachineInstanceSpec{m.is, m.was} {
		for i := range spec.Volumes {
			other := &spec.Volumes[i]
			if other.Name != volume && (volumemigration.ClaimOf(other) == claim || baseOf(other) == claim) {
				return refuse(other.Name, "is that of")
			}
		}
	}
	for other, origin := range m.note {
		if other != volume && origin.Claim == claim {
			return refuse(other, "still has the disk of")
		}
	}
	return nil
}

// baseOf is the claim that volume only reads, "" for none.
func baseOf(volume *virtv1.Volume) string {
	if volume.Ephemeral == nil || volume.Ephemeral.PersistentVolumeClaim == nil {
		return ""
	}
	return volume.Ephemeral.PersistentVolumeClaim.ClaimName
}

func volumeNamed(spec *virtv1.VirtualMachineInstanceSpec, name string) *virtv1.Volume {
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == name {
			return &spec.Volumes[i]
		}
	}
	return nil
}
