package virtualmachineexport

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// manifestInput is all that the definition of an exported VM is built from.
type manifestInput struct {
	Export *exportv1.VirtualMachineExport
	// VM is what is exported: its metadata, spec, and of its status what was inferred.
	VM      *virtv1.VirtualMachine
	Volumes []Volume
	// Authority is that of the server's certificate, in PEM.
	Authority string
}

// buildManifest returns what makes the VM anew, in a namespace that reaches the export: a ConfigMap with the server's
// authority, and the VM, with DataVolumes that import its disks from there. What the DataVolumes show the server is in
// a Secret that is not part of it.
func buildManifest(in manifestInput) []any {
	vm := &virtv1.VirtualMachine{
		TypeMeta: metav1.TypeMeta{APIVersion: virtv1.GroupVersion.String(), Kind: virtv1.VirtualMachineGroupVersionKind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: in.VM.Name, Labels: in.VM.Labels, Annotations: without(in.VM.Annotations, corev1.LastAppliedConfigAnnotation),
		},
		Spec: *in.VM.Spec.DeepCopy(),
	}
	nameInferred(&vm.Spec, &in.VM.Status)
	importDisks(&vm.Spec, in)
	return []any{
		&corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: vmexport.AuthorityConfigMap(in.Export.Name)},
			Data: map[string]string{vmexport.KeyAuthority: in.Authority},
		},
		vm,
	}
}

// encodeManifest is buildManifest as a List in JSON, without what nobody has set.
func encodeManifest(in manifestInput) ([]byte, error) {
	list := map[string]any{"apiVersion": "v1", "kind": "List"}
	var items []any
	for _, object := range buildManifest(in) {
		data, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encoding the definition of VirtualMachine %s: %w", in.VM.Name, err)
		}
		var item map[string]any
		if err := json.Unmarshal(data, &item); err != nil {
			return nil, fmt.Errorf("encoding the definition of VirtualMachine %s: %w", in.VM.Name, err)
		}
		delete(item, "status")
		items = append(items, item)
	}
	list["items"] = items
	data, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encoding the definition of VirtualMachine %s: %w", in.VM.Name, err)
	}
	return data, nil
}

func without(all map[string]string, key string) map[string]string {
	kept := map[string]string{}
	for name, value := range all {
		if name != key {
			kept[name] = value
		}
	}
	return kept
}

// nameInferred names the instance type and the preference that were inferred from a disk: the new disks say nothing of them.
func nameInferred(spec *virtv1.VirtualMachineSpec, was *virtv1.VirtualMachineStatus) {
	if m := spec.Instancetype; m != nil && m.InferFromVolume != "" && was.InstancetypeRef != nil {
		m.Name, m.Kind, m.InferFromVolume, m.InferFromVolumeFailurePolicy = was.InstancetypeRef.Name, was.InstancetypeRef.Kind, "", nil
	}
	if m := spec.Preference; m != nil && m.InferFromVolume != "" && was.PreferenceRef != nil {
		m.Name, m.Kind, m.InferFromVolume, m.InferFromVolumeFailurePolicy = was.PreferenceRef.Name, was.PreferenceRef.Kind, "", nil
	}
}

// importDisks puts DataVolumes that import the exported disks in the places of the VM's claims. Dumps of its memory are left out.
func importDisks(spec *virtv1.VirtualMachineSpec, in manifestInput) {
	if spec.Template == nil {
		return
	}
	volumes := &spec.Template.Spec.Volumes
	*volumes = slices.DeleteFunc(*volumes, func(v virtv1.Volume) bool { return v.MemoryDump != nil })
	for i := range *volumes {
		volume := &(*volumes)[i]
		n := slices.IndexFunc(in.Volumes, func(v Volume) bool { return v.Disk && v.Name == virtualmachinesnapshot.ClaimOf(volume) })
		if n < 0 {
			continue
		}
		plugged := volume.DataVolume != nil && volume.DataVolume.Hotpluggable ||
			volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.Hotpluggable
		name := in.Volumes[n].Name
		volume.VolumeSource = virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: name, Hotpluggable: plugged}}
		spec.DataVolumeTemplates = slices.DeleteFunc(spec.DataVolumeTemplates, func(t virtv1.DataVolumeTemplateSpec) bool { return t.Name == name })
		spec.DataVolumeTemplates = append(spec.DataVolumeTemplates, template(in.Export, in.Volumes[n]))
	}
}

// template is the DataVolume that imports a disk from the export.
func template(export *exportv1.VirtualMachineExport, volume Volume) virtv1.DataVolumeTemplateSpec {
	was := ptr.Deref(volume.was, corev1.PersistentVolumeClaimSpec{})
	return virtv1.DataVolumeTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: volume.Name},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
				URL:           vmexport.URL(vmexport.InternalBase(export.Namespace, export.Name), volume.Name, exportv1.KubeVirtGz),
				CertConfigMap: vmexport.AuthorityConfigMap(export.Name), SecretExtraHeaders: []string{vmexport.HeaderSecret(export.Name)},
			}},
			Storage: &cdiv1.StorageSpec{
				AccessModes: was.AccessModes, VolumeMode: was.VolumeMode,
				Resources: corev1.VolumeResourceRequirements{Requests: was.Resources.Requests},
			},
		},
	}
}
