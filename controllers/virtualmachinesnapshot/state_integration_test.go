//go:build integration

package virtualmachinesnapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/keep"
)

// state makes the claim with the VM's state, on a StorageClass; and one that was an earlier VM's.
func (w *world) state(class string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	w.claim("of-an-earlier-web", class)
	w.claim("persistent-state-for-web-x", class)
	of := func(name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		claim := &corev1.PersistentVolumeClaim{}
		w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, claim))
		claim.Labels = map[string]string{"persistent-state-for": "web"}
		change(claim)
		w.must(w.Update(w.t.Context(), claim))
		return claim
	}
	of("of-an-earlier-web", func(claim *corev1.PersistentVolumeClaim) { keep.For(claim, "another") })
	return of("persistent-state-for-web-x", func(claim *corev1.PersistentVolumeClaim) {
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.vm(), virtv1.VirtualMachineGroupVersionKind)}
	})
}

// The state is taken with the disks, of a guest that stands still, and goes with the content.
func ofState(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, true)
	claim := w.state("fast")
	w.settle("s") // which sees to it that the guest stands still
	w.unlocked()
	got := status(w.snapshot("s"))
	if lists := got.SnapshotVolumes; got.Phase != snapshotv1.Succeeded || !slices.Equal(lists.IncludedVolumes, []string{"root", "data", "persistent-state-for-web"}) ||
		!slices.Equal(lists.ExcludedVolumes, []string{"scratch", "cloudinit"}) {
		t.Fatalf("the snapshot is %+v, with %+v", got, lists)
	}
	if want := []string{"freeze 5m0s", "unfreeze"}; !slices.Equal(w.calls, want) {
		t.Errorf("the guest was asked to %v, want %v", w.calls, want)
	}
	content := w.contents()[0]
	state := StateOf(&content)
	if state == nil || state.PersistentVolumeClaim.Name != claim.Name || LeavesState(w.snapshot("s"), &content) {
		t.Fatalf("the content is %+v", content.Spec)
	}
	n := slices.IndexFunc(content.Status.VolumeSnapshotStatus, func(v snapshotv1.VolumeSnapshotStatus) bool { return v.VolumeSnapshotName == *state.VolumeSnapshotName })
	if n < 0 || !strings.HasSuffix(*state.VolumeSnapshotName, "-volume-persistent-state-for-web") {
		t.Errorf("the VolumeSnapshots are %+v", content.Status)
	}
	for _, volume := range w.volumes() {
		if !metav1.IsControlledBy(volume, &content) {
			t.Errorf("%s does not go with the content", volume.Name)
		}
		if volume.Name == *state.VolumeSnapshotName {
			w.must(c.Delete(t.Context(), volume))
		}
	}
	w.settle("s")
	if Ready(w.snapshot("s")) {
		t.Error("without the state it can be restored")
	}
}

func ofPlainState(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, false)
	w.state("plain")
	w.settle("s")
	w.unlocked()
	lists, content := status(w.snapshot("s")).SnapshotVolumes, w.contents()[0]
	if lists == nil || !slices.Equal(lists.ExcludedVolumes, []string{"scratch", "cloudinit", "persistent-state-for-web"}) || len(content.Spec.VolumeBackups) != 2 {
		t.Fatalf("the volumes are %+v", lists)
	}
	if StateOf(&content) != nil || !LeavesState(w.snapshot("s"), &content) {
		t.Errorf("nothing says that the state is missing: %+v", content)
	}
}

func ofUnreadyState(t *testing.T, c client.WithWatch) {
	for name, test := range map[string]struct {
		prepare func(*world, *corev1.PersistentVolumeClaim)
		want    string
	}{
		"it has no volume": {func(w *world, claim *corev1.PersistentVolumeClaim) {
			claim.Status.Phase = corev1.ClaimPending
			w.must(w.Status().Update(t.Context(), claim))
		}, "volume not bound: persistent-state-for-web-x"},
		"a pod uses it": {func(w *world, claim *corev1.PersistentVolumeClaim) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "user"}}
			pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
			pod.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}}}
			w.must(w.Create(t.Context(), pod))
		}, "pods using PVCs root, data, scratch, persistent-state-for-web-x: user"},
		"a disk has its name": {func(w *world, _ *corev1.PersistentVolumeClaim) {
			vm := w.vm()
			vm.Spec.Template.Spec.Volumes[0].Name = "persistent-state-for-web"
			vm.Spec.Template.Spec.Domain.Devices.Disks[0].Name = "persistent-state-for-web"
			w.must(w.Update(t.Context(), vm))
		}, "source has a volume persistent-state-for-web"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c, false)
			test.prepare(w, w.state("fast"))
			w.settle("s")
			w.unlocked()
			if got := fmt.Sprint(status(w.snapshot("s")).Conditions); !strings.Contains(got, test.want) {
				t.Errorf("it says %s, want %q", got, test.want)
			}
		})
	}
}
