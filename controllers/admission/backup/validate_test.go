package backup_test

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/admission/backup"
)

func validate[T any](t *testing.T, spec string, how func(*T, map[string]any) field.ErrorList) string {
	t.Helper()
	text := `{"metadata": {"name": "b"}, "spec": ` + spec + `}`
	object, raw := new(T), map[string]any{}
	for _, into := range []any{object, &raw} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	errs := how(object, raw)
	if len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}

const (
	machine = `"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}`
	tracker = `"source": {"apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": "web"}`
)

func TestABackupIsJudged(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"of a VM":             {spec: `{` + machine + `, "pvcName": "backups"}`},
		"by a tracker":        {spec: `{` + tracker + `, "pvcName": "backups", "mode": "Push", "skipQuiesce": true, "forceFullBackup": true}`},
		"to no claim":         {spec: `{` + machine + `}`, want: "spec.pvcName: Required value: pvcName is required"},
		"to what is no claim": {spec: `{` + machine + `, "pvcName": "../x"}`, want: "spec.pvcName: Invalid value"},
		"that is pulled":      {spec: `{` + machine + `, "pvcName": "backups", "mode": "Pull", "tokenSecretRef": "s"}`, want: "spec.mode: Forbidden: backups are not served to be pulled yet"},
		"with a time to live": {spec: `{` + machine + `, "pvcName": "backups", "ttlDuration": "1h"}`, want: "spec.ttlDuration"},
		"of a claim":          {spec: `{"source": {"kind": "PersistentVolumeClaim", "name": "web"}, "pvcName": "backups"}`, want: "spec.source.kind: Unsupported value"},
		"of another group":    {spec: `{"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": "web"}, "pvcName": "backups"}`, want: "spec.source.apiGroup"},
		"of no name":          {spec: `{"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine"}, "pvcName": "backups"}`, want: "spec.source.name: Required"},
	} {
		t.Run(name, func(t *testing.T) {
			got := validate[backupv1.VirtualMachineBackup](t, c.spec, backup.Validate)
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestATrackerIsOfAVM(t *testing.T) {
	if got := validate[backupv1.VirtualMachineBackupTracker](t, `{`+machine+`}`, backup.ValidateTracker); got != "" {
		t.Error(got)
	}
	if got := validate[backupv1.VirtualMachineBackupTracker](t, `{`+tracker+`}`, backup.ValidateTracker); !strings.Contains(got, "spec.source.kind") {
		t.Errorf("of a tracker: %q", got)
	}
}

func TestASpecDoesNotChange(t *testing.T) {
	old := backupv1.VirtualMachineBackupSpec{PvcName: new("backups")}
	if errs := backup.ValidateUpdate(&old, old.DeepCopy()); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := backup.ValidateUpdate(&old, &backupv1.VirtualMachineBackupSpec{PvcName: new("others")}); len(errs) == 0 {
		t.Error("it changed")
	}
}

func TestBackupsAreBehindAFeatureGate(t *testing.T) {
	kv := &virtv1.KubeVirt{}
	if errs := backup.Closed(kv); len(errs) != 1 || !strings.Contains(errs[0].Error(), "IncrementalBackup feature gate not enabled") {
		t.Errorf("got %v", errs)
	}
	kv.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{FeatureGates: []string{"IncrementalBackup"}}
	if errs := backup.Closed(kv); len(errs) > 0 {
		t.Error(errs)
	}
}
