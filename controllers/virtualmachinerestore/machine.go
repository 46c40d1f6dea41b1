package virtualmachinerestore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/controllers/virtualmachine"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/rename"
)

// newMachine makes the VM that does not exist: content's, under the name of the restore's target, and halted. One that has the name of its source, whose uid was
// source, is the same guest again.
func newMachine(restore *snapshotv1.VirtualMachineRestore, content *snapshotv1.VirtualMachineSnapshotContent, restores []snapshotv1.VolumeRestore, source *types.UID) (*virtv1.VirtualMachine, error) {
	was := content.Spec.Source.VirtualMachine
	vm := &virtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: restore.Namespace, Name: restore.Spec.Target.Name,
			Labels: maps.Clone(was.Labels), Annotations: maps.Clone(was.Annotations),
		},
		Spec: restoredSpec(content, restores),
	}
	if vm.Annotations == nil {
		vm.Annotations = map[string]string{}
	}
	// What is so of the old one only: that it is renamed, or goes with the run that made it.
	for _, ofOld := range []string{rename.AnnotationTarget, rename.AnnotationOrigin, rename.AnnotationFailure, keep.AnnotationRecord, names.LabelTaskRun} {
		delete(vm.Annotations, ofOld)
		delete(vm.Labels, ofOld)
	}
	if vm.Spec.Running != nil {
		vm.Spec.Running = new(false)
	} else {
		vm.Spec.RunStrategy = new(virtv1.RunStrategyHalted)
	}
	keepInferred(vm, &was.Status)
	if vm.Name == was.Name && source != nil {
		keepFirmware(vm, *source)
	}
	keepTypes(&vm.Spec, content, vm.Name)
	pinned := vm.Spec.DeepCopy()
	if err := patch(vm, restore.Spec.Patches); err != nil {
		return nil, err
	}
	unpin(pinned, &vm.Spec)
	vm.Annotations[AnnotationLast] = mark(restore)
	return vm, nil
}

// Planned is the VM that restore makes of content, but for its disks: they are still the old VM's, whose uid was source.
func Planned(restore *snapshotv1.VirtualMachineRestore, content *snapshotv1.VirtualMachineSnapshotContent, source *types.UID) (*virtv1.VirtualMachine, error) {
	return newMachine(restore, content, nil, source)
}

// keepInferred names the instance type and the preference that were found by the disks before: the new ones may not tell.
func keepInferred(vm *virtv1.VirtualMachine, was *virtv1.VirtualMachineStatus) {
	if m := vm.Spec.Instancetype; m != nil && m.InferFromVolume != "" && was.InstancetypeRef != nil {
		m.Name, m.Kind, m.InferFromVolume, m.InferFromVolumeFailurePolicy = was.InstancetypeRef.Name, was.InstancetypeRef.Kind, "", nil
	}
	if m := vm.Spec.Preference; m != nil && m.InferFromVolume != "" && was.PreferenceRef != nil {
		m.Name, m.Kind, m.InferFromVolume, m.InferFromVolumeFailurePolicy = was.PreferenceRef.Name, was.PreferenceRef.Kind, "", nil
	}
}

// keepFirmware gives the guest the UUID that followed from its VM's uid.
func keepFirmware(vm *virtv1.VirtualMachine, uid types.UID) {
	domain := &vm.Spec.Template.Spec.Domain
	if domain.Firmware == nil {
		domain.Firmware = &virtv1.Firmware{}
	}
	if domain.Firmware.UUID == "" {
		domain.Firmware.UUID = virtualmachine.FirmwareUUID(uid)
	}
}

// restoredMachine is vm with content's definition. Whether it runs stays as it is: it was stopped for the restore, or by itself.
func restoredMachine(vm *virtv1.VirtualMachine, restore *snapshotv1.VirtualMachineRestore, content *snapshotv1.VirtualMachineSnapshotContent, restores []snapshotv1.VolumeRestore) *virtv1.VirtualMachine {
	next := vm.DeepCopy()
	next.Spec = restoredSpec(content, restores)
	keepTypes(&next.Spec, content, vm.Name)
	next.Spec.Running, next.Spec.RunStrategy = vm.Spec.Running, vm.Spec.RunStrategy
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[AnnotationLast] = mark(restore)
	return next
}

// restoredSpec is content's definition, with the claims of restores in the place of those that it had. A memory dump is left out.
func restoredSpec(content *snapshotv1.VirtualMachineSnapshotContent, restores []snapshotv1.VolumeRestore) virtv1.VirtualMachineSpec {
	spec := *content.Spec.Source.VirtualMachine.Spec.DeepCopy()
	volumes := &spec.Template.Spec.Volumes
	*volumes = slices.DeleteFunc(*volumes, func(volume virtv1.Volume) bool { return volume.MemoryDump != nil })
	for i := range *volumes {
		volume := &(*volumes)[i]
		at := slices.IndexFunc(restores, func(one snapshotv1.VolumeRestore) bool { return one.VolumeName == volume.Name })
		if at < 0 {
			continue
		}
		switch one := restores[at]; {
		case volume.PersistentVolumeClaim != nil:
			volume.PersistentVolumeClaim.ClaimName = one.PersistentVolumeClaimName
		case volume.DataVolume != nil && one.DataVolumeName != nil:
			templateOf(spec.DataVolumeTemplates, volume.DataVolume.Name).Name = *one.DataVolumeName
			volume.DataVolume.Name = *one.DataVolumeName
		case volume.DataVolume != nil: // of a DataVolume that is not the VM's, or is not to be: a claim
			spec.DataVolumeTemplates = slices.DeleteFunc(spec.DataVolumeTemplates, func(t virtv1.DataVolumeTemplateSpec) bool { return t.Name == volume.DataVolume.Name })
			volume.VolumeSource = virtv1.VolumeSource{PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: one.PersistentVolumeClaimName},
				Hotpluggable:                      volume.DataVolume.Hotpluggable,
			}}
		}
	}
	return spec
}

func templateOf(templates []virtv1.DataVolumeTemplateSpec, name string) *virtv1.DataVolumeTemplateSpec {
	for i := range templates {
		if templates[i].Name == name {
			return &templates[i]
		}
	}
	return nil
}

// obsolete are the DataVolumes of vm's templates that it will not have any more.
func obsolete(vm *virtv1.VirtualMachine, content *snapshotv1.VirtualMachineSnapshotContent, restores []snapshotv1.VolumeRestore) []string {
	if vm == nil {
		return nil
	}
	next := restoredSpec(content, restores)
	var gone []string
	for _, template := range vm.Spec.DataVolumeTemplates {
		if templateOf(next.DataVolumeTemplates, template.Name) == nil {
			gone = append(gone, template.Name)
		}
	}
	return gone
}

// patch applies JSON patches to vm.
func patch(vm *virtv1.VirtualMachine, patches []string) error {
	if len(patches) == 0 {
		return nil
	}
	decoded, err := jsonpatch.DecodePatch([]byte("[" + strings.Join(patches, ",") + "]"))
	if err != nil {
		return fail("spec.patches: %v", err)
	}
	before, err := json.Marshal(vm)
	if err != nil {
		return fmt.Errorf("encoding VirtualMachine %s: %w", vm.Name, err)
	}
	after, err := decoded.Apply(before)
	if err != nil {
		return fail("spec.patches cannot be applied to VirtualMachine %s: %v", vm.Name, err)
	}
	name, namespace := vm.Name, vm.Namespace
	*vm = virtv1.VirtualMachine{}
	if err := json.Unmarshal(after, vm); err != nil {
		return fail("spec.patches make no VirtualMachine: %v", err)
	}
	if vm.Name != name || vm.Namespace != namespace {
		return fail("spec.patches change the name of the VirtualMachine; name it in spec.target")
	}
	if vm.Annotations == nil {
		vm.Annotations = map[string]string{}
	}
	return nil
}
