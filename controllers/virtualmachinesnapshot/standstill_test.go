package virtualmachinesnapshot

import (
	"testing"
	"time"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
)

func TestAGuestThatWentOnBeforeItsLastDiskIsNoticed(t *testing.T) {
	begin := time.Date(2026, time.November, 26, 12, 0, 0, 0, time.UTC)
	at := func(after time.Duration) metav1.Time { return metav1.NewTime(begin.Add(after)) }
	for name, c := range map[string]struct {
		deadline *metav1.Duration
		took     time.Duration
		want     bool
	}{
		"at once":                              {took: time.Second},
		"as long as nobody has given":          {took: snapshotv1.DefaultFailureDeadline, want: true},
		"within a deadline of its own":         {deadline: &metav1.Duration{Duration: time.Hour}, took: 59 * time.Minute},
		"one that may take for ever, soon":     {deadline: &metav1.Duration{}, took: 4 * time.Minute},
		"one that may take for ever, too late": {deadline: &metav1.Duration{}, took: 6 * time.Minute, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{snapshot: &snapshotv1.VirtualMachineSnapshot{Spec: snapshotv1.VirtualMachineSnapshotSpec{FailureDeadline: c.deadline}}}
			s.volumes = map[string]*csiv1.VolumeSnapshot{
				"root": {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(0)}, Status: &csiv1.VolumeSnapshotStatus{CreationTime: new(at(0))}},
				"data": {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(time.Second)}, Status: &csiv1.VolumeSnapshotStatus{CreationTime: new(at(c.took))}},
			}
			if got := s.wentOn(); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
