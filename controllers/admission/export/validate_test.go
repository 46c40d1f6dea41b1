package export

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
)

func export(group *string, kind, name string) *exportv1.VirtualMachineExport {
	return &exportv1.VirtualMachineExport{Spec: exportv1.VirtualMachineExportSpec{
		Source: corev1.TypedLocalObjectReference{APIGroup: group, Kind: kind, Name: name},
	}}
}

func TestExportsAreChecked(t *testing.T) {
	for sentence, c := range map[string]struct {
		export *exportv1.VirtualMachineExport
		change func(*exportv1.VirtualMachineExportSpec)
		want   string // "" for nothing
	}{
		"a claim":                        {export: export(new(""), "PersistentVolumeClaim", "data")},
		"a claim, of the group left out": {export: export(nil, "PersistentVolumeClaim", "data")},
		"a VM":                           {export: export(new("kubevirt.io"), "VirtualMachine", "web")},
		"a snapshot":                     {export: export(new("snapshot.kubevirt.io"), "VirtualMachineSnapshot", "before")},
		"a VM of no group":               {export: export(nil, "VirtualMachine", "web"), want: `spec.source.apiGroup: Invalid value: "": must be kubevirt.io`},
		"a claim of another group":       {export: export(new("apps"), "PersistentVolumeClaim", "data"), want: "or left out"},
		"a snapshot of another group":    {export: export(new("snapshot.storage.k8s.io"), "VirtualMachineSnapshot", "s"), want: "must be snapshot.kubevirt.io"},
		"another kind":                   {export: export(new("kubevirt.io"), "VirtualMachineInstance", "web"), want: `supported values: "PersistentVolumeClaim", "VirtualMachine", "VirtualMachineSnapshot"`},
		"a backup":                       {export: export(new("backup.kubevirt.io"), "VirtualMachineBackup", "b"), want: "spec.source.kind"},
		"no name":                        {export: export(nil, "PersistentVolumeClaim", ""), want: "spec.source.name: Required"},
		"a token and a time": {
			export: export(nil, "PersistentVolumeClaim", "data"),
			change: func(spec *exportv1.VirtualMachineExportSpec) {
				spec.TokenSecretRef, spec.TTLDuration = new("my-token"), &metav1.Duration{Duration: time.Minute}
			},
		},
		"a token that is no name": {
			export: export(nil, "PersistentVolumeClaim", "data"), want: "spec.tokenSecretRef",
			change: func(spec *exportv1.VirtualMachineExportSpec) { spec.TokenSecretRef = new("../other") },
		},
		"no time": {
			export: export(nil, "PersistentVolumeClaim", "data"), want: "must be more than 0s",
			change: func(spec *exportv1.VirtualMachineExportSpec) { spec.TTLDuration = &metav1.Duration{} },
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.change != nil {
				c.change(&c.export.Spec)
			}
			errs := Validate(c.export)
			got := ""
			if len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}

func TestASpecStays(t *testing.T) {
	old := export(nil, "PersistentVolumeClaim", "data")
	same := old.DeepCopy()
	same.Labels = map[string]string{"a": "b"}
	if errs := ValidateUpdate(old, same); len(errs) > 0 {
		t.Error(errs)
	}
	same.Spec.TTLDuration = &metav1.Duration{Duration: time.Hour}
	if errs := ValidateUpdate(old, same); len(errs) != 1 {
		t.Errorf("a change of the spec: %v", errs)
	}
}
