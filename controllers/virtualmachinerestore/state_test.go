package virtualmachinerestore

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
)

// A state is restored beside the disks: under the name that the policy says, with no DataVolume, and not as the state of the VM that it was of.
func TestAStateBecomesAClaim(t *testing.T) {
	content := contentOf()
	was := snapshotv1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "state", Labels: map[string]string{names.LabelState: "web", "app": "x"}}}
	was.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}
	content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, snapshotv1.VolumeBackup{
		VolumeName: "persistent-state-for-web", VolumeSnapshotName: new("of-state"), PersistentVolumeClaim: was,
	})
	for policy, want := range map[snapshotv1.VolumeRestorePolicy]string{
		snapshotv1.VolumeRestorePolicyRandomizeNames:   "restore-1-2-persistent-state-for-web",
		snapshotv1.VolumeRestorePolicyPrefixTargetName: "copy-persistent-state-for-web",
		snapshotv1.VolumeRestorePolicyInPlace:          "state",
	} {
		restore := restoreTo("copy")
		restore.Spec.VolumeRestorePolicy = &policy
		restores, err := restoresOf(restore, content)
		if err != nil || len(restores) != 4 {
			t.Fatalf("%s: %+v, %v", policy, restores, err)
		}
		one := restores[3]
		if one.PersistentVolumeClaimName != want || one.DataVolumeName != nil || !isState(content, one) || isState(content, restores[0]) {
			t.Errorf("%s: %+v", policy, one)
		}
		if claim := newClaim(restore, content, one, nil); claim.Labels[names.LabelState] != "" || claim.Labels["app"] != "x" || claim.Spec.DataSource.Name != "of-state" {
			t.Errorf("%s: the claim is %+v", policy, claim)
		}
		if got := restoredSpec(content, restores).Template.Spec.Volumes; len(got) != 4 {
			t.Errorf("%s: the VM names it: %+v", policy, got)
		}
	}
}
