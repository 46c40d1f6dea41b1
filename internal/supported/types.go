package supported

import (
	"encoding/json"
	"reflect"
	"strings"

	backupv1 "kubevirt.io/api/backup/v1alpha1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// leaf is a field of an API type that has no fields of its own.
type leaf struct {
	// optional says that leaving it out differs from its zero value.
	optional bool
	// empty says that it is a struct without fields, whose presence is its meaning.
	empty bool
}

// types are the API types by kind.
var types = map[string]reflect.Type{
	VirtualMachine:         reflect.TypeFor[virtv1.VirtualMachine](),
	VirtualMachineInstance: reflect.TypeFor[virtv1.VirtualMachineInstance](),
	Pool:                   reflect.TypeFor[poolv1.VirtualMachinePool](),
	ReplicaSet:             reflect.TypeFor[virtv1.VirtualMachineInstanceReplicaSet](),
	DataVolume:             reflect.TypeFor[cdiv1.DataVolume](),
	Snapshot:               reflect.TypeFor[snapshotv1.VirtualMachineSnapshot](),
	Export:                 reflect.TypeFor[exportv1.VirtualMachineExport](),
	Restore:                reflect.TypeFor[snapshotv1.VirtualMachineRestore](),
	Clone:                  reflect.TypeFor[clonev1.VirtualMachineClone](),
	Backup:                 reflect.TypeFor[backupv1.VirtualMachineBackup](),
	BackupTracker:          reflect.TypeFor[backupv1.VirtualMachineBackupTracker](),
	DataImportCron:         reflect.TypeFor[cdiv1.DataImportCron](),
	ObjectTransfer:         reflect.TypeFor[cdiv1.ObjectTransfer](),
	CDI:                    reflect.TypeFor[cdiv1.CDI](),
	KubeVirt:               reflect.TypeFor[virtv1.KubeVirt](),
	VolumeImportSource:     reflect.TypeFor[cdiv1.VolumeImportSource](),
	VolumeUploadSource:     reflect.TypeFor[cdiv1.VolumeUploadSource](),
	VolumeCloneSource:      reflect.TypeFor[cdiv1.VolumeCloneSource](),
}

// leavesOf returns the leaves below spec of the kind's type, by path.
func leavesOf(kind string) map[string]leaf {
	found := map[string]leaf{}
	spec, ok := types[kind].FieldByName("Spec")
	if ok {
		collect(found, "spec", spec.Type, false)
	}
	return found
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func collect(found map[string]leaf, path string, t reflect.Type, optional bool) {
	if t.Kind() == reflect.Pointer {
		collect(found, path, t.Elem(), true)
		return
	}
	if t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		found[path] = leaf{optional: optional}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		if t.NumField() == 0 {
			found[path] = leaf{optional: true, empty: true}
			return
		}
		collectFields(found, path, t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			found[path] = leaf{optional: optional}
			return
		}
		collect(found, path+"[]", t.Elem(), false)
	default:
		found[path] = leaf{optional: optional}
	}
}

func collectFields(found map[string]leaf, path string, t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && (name == "" || strings.Contains(options, "inline")):
			inline(found, path, f.Type)
		case name != "":
			collect(found, path+"."+name, f.Type, false)
		}
	}
}

// inline collects the fields of a struct that is written into its parent.
func inline(found map[string]leaf, path string, t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		collectFields(found, path, t)
	}
}
