package admission

import (
	"slices"
	"testing"
)

func TestBadExportsAreRefusedWithThePath(t *testing.T) {
	const base = "apiVersion: export.kubevirt.io/v1\nkind: VirtualMachineExport\nmetadata: {name: e}\nspec: "
	for spec, want := range map[string][]string{
		"{source: {kind: PersistentVolumeClaim, name: data}}":                                                                         nil,
		"{source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: web}, tokenSecretRef: mine, ttlDuration: 30m}":                  nil,
		"{source: {apiGroup: snapshot.kubevirt.io, kind: VirtualMachineSnapshot, name: before}}":                                      nil,
		"{source: {apiGroup: backup.kubevirt.io, kind: VirtualMachineBackup, name: nightly}, tokenSecretRef: mine, ttlDuration: 30m}": {"spec.source.kind"},
		"{source: {kind: PersistentVolumeClaim, name: data}, tokenSecretRef: No Name, ttlDuration: -1s}":                              {"spec.tokenSecretRef", "spec.ttlDuration"},
	} {
		response := ask(t, "/virtualmachineexports-validate", []byte(base+spec), nil, "jane")
		if got := refusedPaths(response); response.Allowed != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("%s\nrefused %v, want %v: %+v", spec, got, want, response.Result)
		}
	}
	const claim = "{source: {kind: PersistentVolumeClaim, name: data}}"
	if response := ask(t, "/virtualmachineexports-validate", []byte(base+"{source: {kind: PersistentVolumeClaim, name: other}}"), []byte(base+claim), "jane"); response.Allowed {
		t.Error("the source of an export changes")
	}
}
