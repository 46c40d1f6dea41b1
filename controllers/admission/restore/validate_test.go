package restore_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/controllers/admission/restore"
)

func wanted(name string) *snapshotv1.VirtualMachineRestore {
	return &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: snapshotv1.VirtualMachineRestoreSpec{
			Target:                     corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"},
			VirtualMachineSnapshotName: "s",
		},
	}
}

func TestARestoreSaysWhatItMeans(t *testing.T) {
	type spec = snapshotv1.VirtualMachineRestoreSpec
	override := func(o snapshotv1.VolumeRestoreOverride) func(*spec) {
		return func(s *spec) { s.VolumeRestoreOverrides = append(s.VolumeRestoreOverrides, o) }
	}
	patch := func(text string) func(*spec) { return func(s *spec) { s.Patches = []string{text} } }
	for name, c := range map[string]struct {
		change func(*spec)
		want   string
	}{
		"nothing special":             {func(*spec) {}, ""},
		"another kind":                {func(s *spec) { s.Target.Kind = "Pod" }, "spec.target.kind: Invalid value: \"Pod\": invalid kind"},
		"no snapshot":                 {func(s *spec) { s.VirtualMachineSnapshotName = "" }, "spec.virtualMachineSnapshotName: Required value"},
		"a patch of the spec":         {patch(`{"op":"replace","path":"/spec/template/spec/domain/devices/interfaces/0/macAddress","value":"02:00:00:00:00:01"}`), ""},
		"a patch of a label":          {patch(`{"op":"add","path":"/metadata/labels/team","value":"a"}`), ""},
		"a patch of the name":         {patch(`{"op":"replace","path":"/metadata/name","value":"x"}`), "patching is valid only for elements under /spec/ only"},
		"a patch from elsewhere":      {patch(`{"op":"copy","from":"/metadata/uid","path":"/metadata/labels/uid"}`), "/metadata/uid"},
		"a patch of nothing":          {patch(`{"op":"remove"}`), "patch format is not valid"},
		"a patch with two paths":      {patch(`{"op":"add","path":"/metadata/ownerReferences","Path":"/spec/x","value":[]}`), "patching is valid only"},
		"a patch from two places":     {patch(`{"op":"copy","from":"/metadata/uid","From":"/spec/x","path":"/metadata/labels/uid"}`), "/metadata/uid"},
		"two patches in one":          {patch(`{"op":"remove","path":"/spec/x"},{"op":"remove","path":"/metadata/name"}`), "there are 2"},
		"another operation":           {patch(`{"op":"mend","path":"/spec/x"}`), "unsupported operation"},
		"what is no patch":            {patch(`op: add`), "spec.patches[0]: Invalid value"},
		"an override of no volume":    {override(snapshotv1.VolumeRestoreOverride{RestoreName: "x"}), "spec.volumeRestoreOverrides[0].volumeName: Required value: must provide a volume name"},
		"an override of nothing":      {override(snapshotv1.VolumeRestoreOverride{VolumeName: "root"}), "must provide at least one"},
		"an override to no name":      {override(snapshotv1.VolumeRestoreOverride{VolumeName: "root", RestoreName: "A b"}), "spec.volumeRestoreOverrides[0].restoreName"},
		"an override of a claim name": {override(snapshotv1.VolumeRestoreOverride{VolumeName: "root", RestoreName: "web-root"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := wanted("r")
			c.change(&object.Spec)
			err := restore.Validate(object, nil).ToAggregate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestAVMIsRestoredOnceAtATime(t *testing.T) {
	failed := &snapshotv1.VirtualMachineRestoreStatus{Conditions: []snapshotv1.Condition{{Type: snapshotv1.ConditionFailure, Status: corev1.ConditionTrue}}}
	for name, c := range map[string]struct {
		status *snapshotv1.VirtualMachineRestoreStatus
		target string
		want   bool
	}{
		"one that has just begun": {nil, "web", false},
		"one that works":          {&snapshotv1.VirtualMachineRestoreStatus{Complete: new(false)}, "web", false},
		"one that is done":        {&snapshotv1.VirtualMachineRestoreStatus{Complete: new(true)}, "web", true},
		"one that has failed":     {failed, "web", true},
		"one of another VM":       {nil, "shop", true},
	} {
		t.Run(name, func(t *testing.T) {
			other := wanted("before")
			other.Status, other.Spec.Target.Name = c.status, c.target
			errs := restore.Validate(wanted("r"), []snapshotv1.VirtualMachineRestore{*other})
			if (len(errs) == 0) != c.want {
				t.Errorf("got %v", errs)
			}
		})
	}
}
