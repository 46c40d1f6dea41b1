package virtualmachinetemplaterequest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/catalog/template"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/guestid"
	"github.com/slipway-vm/slipway/internal/names"
)

// makeTemplate makes the template.
func (r *Reconciler) makeTemplate(ctx context.Context, s *scope) error {
	if s.template != nil {
		return nil
	}
	key := client.ObjectKeyFromObject(s.planned)
	err := r.Create(ctx, s.planned, client.FieldOwner(names.ManagerController))
	switch {
	case apierrors.IsAlreadyExists(err):
		return fail("existing VirtualMachineTemplate %s was not created by this request", key)
	case refused(err):
		return poll("creating VirtualMachineTemplate %s: %v", key, err)
	case err != nil:
		return fmt.Errorf("creating VirtualMachineTemplate %s: %w", key, err)
	}
	s.template = s.planned
	return nil
}

// copied are those of a snapshot's disks that are copied: of the VM's volumes, and no memory dump. The state of a TPM or of
// UEFI is of the one guest, and is none of the VM's volumes.
func copied(content *snapshotv1.VirtualMachineSnapshotContent) []snapshotv1.VolumeBackup {
	var all []snapshotv1.VolumeBackup
	for _, volume := range content.Spec.Source.VirtualMachine.Spec.Template.Spec.Volumes {
		if backup := backupOf(content.Spec.VolumeBackups, volume.Name); backup != nil && volume.MemoryDump == nil {
			all = append(all, *backup)
		}
	}
	return all
}

func backupOf(all []snapshotv1.VolumeBackup, volume string) *snapshotv1.VolumeBackup {
	at := slices.IndexFunc(all, func(b snapshotv1.VolumeBackup) bool { return b.VolumeName == volume })
	if at < 0 {
		return nil
	}
	return &all[at]
}

// newTemplate makes the template that request asks for, of a VM that names no instance type or preference any more. disks are
// those that are copied.
func newTemplate(request *vmtemplatev1beta1.VirtualMachineTemplateRequest, was *virtv1.VirtualMachineSpec, disks []snapshotv1.VolumeBackup) (*vmtemplatev1beta1.VirtualMachineTemplate, error) {
	spec, err := escaped(nameless(was))
	if err != nil {
		return nil, err
	}
	useCopies(spec, request, disks)
	vm, err := encode(spec)
	if err != nil {
		return nil, err
	}
	labels := maps.Clone(request.Spec.TemplateLabels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[vmtemplatev1beta1.LabelRequest] = string(request.UID)
	return &vmtemplatev1beta1.VirtualMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: templateName(request), Labels: labels},
		Spec: vmtemplatev1beta1.VirtualMachineTemplateSpec{
			VirtualMachine: &runtime.RawExtension{Raw: vm},
			Parameters:     []vmtemplatev1beta1.Parameter{{Name: parameterName, Description: "Name of the VirtualMachine.", Required: true}},
		},
	}, nil
}

// nameless is a VM without what its guest is known by.
func nameless(was *virtv1.VirtualMachineSpec) *virtv1.VirtualMachineSpec {
	spec := was.DeepCopy()
	delete(spec.Template.ObjectMeta.Annotations, guestid.AnnotationName)
	domain := &spec.Template.Spec.Domain
	for i := range domain.Devices.Interfaces {
		domain.Devices.Interfaces[i].MacAddress = ""
	}
	if domain.Firmware != nil {
		domain.Firmware.UUID, domain.Firmware.Serial = "", ""
	}
	if domain.Chassis != nil {
		domain.Chassis.Serial = ""
	}
	return spec
}

// escaped is a VM whose texts, such as a guest's scripts, hold no parameters.
func escaped(was *virtv1.VirtualMachineSpec) (*virtv1.VirtualMachineSpec, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(was)
	if err != nil {
		return nil, fmt.Errorf("converting the VirtualMachine: %w", err)
	}
	tree, _ = template.Escape(tree).(map[string]any)
	spec := &virtv1.VirtualMachineSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, spec); err != nil {
		return nil, fmt.Errorf("converting the VirtualMachine back: %w", err)
	}
	return spec, nil
}

// useCopies makes every new VM copy its disks from those that are copied for request. Its names of claims are its own.
func useCopies(spec *virtv1.VirtualMachineSpec, request *vmtemplatev1beta1.VirtualMachineTemplateRequest, disks []snapshotv1.VolumeBackup) {
	volumes := &spec.Template.Spec.Volumes
	*volumes = slices.DeleteFunc(*volumes, func(volume virtv1.Volume) bool { return volume.MemoryDump != nil })
	spec.DataVolumeTemplates = nil // each was of a volume
	for i := range *volumes {
		volume := &(*volumes)[i]
		backup := backupOf(disks, volume.Name)
		if backup == nil {
			continue
		}
		own := newName + "-" + volume.Name
		volume.VolumeSource = virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: own, Hotpluggable: hotpluggable(volume)}}
		spec.DataVolumeTemplates = append(spec.DataVolumeTemplates, virtv1.DataVolumeTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Name: own},
			Spec: cdiv1.DataVolumeSpec{
				Source:  &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: request.Namespace, Name: diskName(request, volume.Name)}},
				Storage: storage(backup),
			},
		})
	}
}

func hotpluggable(volume *virtv1.Volume) bool {
	return volume.DataVolume != nil && volume.DataVolume.Hotpluggable || volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.Hotpluggable
}

// encode is a VM of a template. Labels and annotations are the first VM's alone.
func encode(spec *virtv1.VirtualMachineSpec) ([]byte, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, fmt.Errorf("converting the VirtualMachine: %w", err)
	}
	data, err := json.Marshal(apply.WithoutNulls(map[string]any{
		"apiVersion": virtv1.GroupVersion.String(), "kind": kindMachine, "metadata": map[string]any{"name": newName}, "spec": tree,
	}))
	if err != nil {
		return nil, fmt.Errorf("encoding the VirtualMachine: %w", err)
	}
	return data, nil
}
