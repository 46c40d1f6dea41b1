// Package supported is the list of the API's fields that Slipway acts on. The CRDs carry
// the full schema of the field's own API; what is not on the list is refused at
// admission with its path, so that nothing is silently ignored.
package supported

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kinds that have a list.
const (
	VirtualMachine         = "VirtualMachine"
	VirtualMachineInstance = "VirtualMachineInstance"
	ReplicaSet             = "VirtualMachineInstanceReplicaSet"
	Pool                   = "VirtualMachinePool"
	DataVolume             = "DataVolume"
	Snapshot               = "VirtualMachineSnapshot"
	Restore                = "VirtualMachineRestore"
	Export                 = "VirtualMachineExport"
	Clone                  = "VirtualMachineClone"
	Backup                 = "VirtualMachineBackup"
	BackupTracker          = "VirtualMachineBackupTracker"
	DataImportCron         = "DataImportCron"
	ObjectTransfer         = "ObjectTransfer"
	CDI                    = "CDI"
	KubeVirt               = "KubeVirt"
	VolumeImportSource     = "VolumeImportSource"
	VolumeUploadSource     = "VolumeUploadSource"
	VolumeCloneSource      = "VolumeCloneSource"
)

// Field is a field that Slipway acts on, with all that is below it.
type Field struct {
	// Path is where the field is, with [] for the items of a list: spec.volumes[].name.
	Path string
	// Only are the values that are acted on; empty for all that the schema allows.
	Only []string
	// Note says what a user should know, for the docs.
	Note string
}

// Unsupported returns an error for every field below object's spec that Slipway does
// not act on. kind is one of the constants above; object is the whole object as JSON
// has it. A field at its zero value, where that says the same as leaving it out, passes.
func Unsupported(kind string, object map[string]any) field.ErrorList {
	t := tables()[kind]
	if t == nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("kind %s has no list of supported fields", kind))}
	}
	spec, found := object["spec"]
	if !found {
		return nil
	}
	w := walk{table: t}
	w.value("spec", field.NewPath("spec"), spec)
	return w.errs
}

// OfObject is Unsupported for an object of the API's Go types.
func OfObject(kind string, object any) field.ErrorList {
	data, err := json.Marshal(object)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("encoding %s: %w", kind, err))}
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("decoding %s: %w", kind, err))}
	}
	return Unsupported(kind, content)
}

// table is the list of one kind, prepared for look-up.
type table struct {
	fields map[string]Field
	// inner are the paths above those of fields.
	inner map[string]bool
	// leaves are all leaves of the kind's type, by path.
	leaves map[string]leaf
}

var tables = sync.OnceValue(func() map[string]*table {
	all := map[string]*table{}
	for kind, list := range lists() {
		t := &table{fields: map[string]Field{}, inner: map[string]bool{}, leaves: leavesOf(kind)}
		for _, f := range list {
			t.fields[f.Path] = f
			for path := parent(f.Path); path != ""; path = parent(path) {
				t.inner[path] = true
			}
		}
		all[kind] = t
	}
	return all
})

// parent returns the path one level up: a.b[] of a.b[].c, a.b of a.b[], a of a.b.
func parent(path string) string {
	if trimmed, isItem := strings.CutSuffix(path, "[]"); isItem {
		return trimmed
	}
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}

// walk compares a value with a table and collects what is not in it.
type walk struct {
	table *table
	errs  field.ErrorList
}

func (w *walk) value(path string, at *field.Path, value any) {
	if value == nil {
		return
	}
	if f, ok := w.table.fields[path]; ok {
		w.only(f, at, value)
		return
	}
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 && !w.table.inner[path] {
			w.refuse(at)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			w.value(path+"."+key, at.Child(key), v[key])
		}
	case []any:
		for i, item := range v {
			w.value(path+"[]", at.Index(i), item)
		}
	default:
		if !w.saysNothing(path, value) {
			w.refuse(at)
		}
	}
}

// saysNothing says whether value is what the field is when it is left out.
func (w *walk) saysNothing(path string, value any) bool {
	l, known := w.table.leaves[path]
	if !known || l.optional {
		return false
	}
	switch v := value.(type) {
	case bool:
		return !v
	case string:
		return v == ""
	case float64:
		return v == 0
	case int64:
		return v == 0
	}
	return false
}

// Refusal is what is said of a field that is not acted on.
const Refusal = "Slipway does not act on this field yet; remove it"

func (w *walk) refuse(at *field.Path) {
	w.errs = append(w.errs, field.Forbidden(at, Refusal))
}

func (w *walk) only(f Field, at *field.Path, value any) {
	if len(f.Only) == 0 || slices.Contains(f.Only, fmt.Sprint(value)) {
		return
	}
	w.errs = append(w.errs, field.NotSupported(at, fmt.Sprint(value), f.Only))
}
