//go:build integration

package datavolume_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// TestCopies runs the controller against a real API server; the tests play kubelet and storage.
func TestCopies(t *testing.T) {
	c := start(t)
	for name, test := range map[string]func(*testing.T, *foreign){
		"a claim of another class is copied":             copyOfAnotherClass,
		"a copy may be asked for":                        copyAsked,
		"a copy waits for whoever uses its source":       copyInUse,
		"one of another namespace is made there":         copyThere,
		"and waits for whoever uses its source":          copyThereInUse,
		"one of another namespace that cannot be, fails": copyThereFails,
		"one of another namespace is given up":           copyThereAbandoned,
		"a snapshot of another namespace is copied":      copySnapshotThere,
		"and leaves nothing when it is given up":         copySnapshotThereAbandoned,
		"one goes on without its snapshot":               copyThereWithoutSource,
		"one goes on when its DataSource moves on":       copyThereOfWhatMovedOn,
		"one goes on whose source said how large it is":  copyThereWithoutSize,
		"a quota is waited for":                          copyOverQuota,
		"a snapshot that is deleted is missed":           copySnapshotThatGoes,
		"a source without a volume is waited for":        copyOfNothing,
		"what no driver clones is copied":                copyOfNoDriver,
		"one that was begun goes on as a copy":           copyThatWasBegun,
	} {
		t.Run(name, func(t *testing.T) { test(t, &foreign{world: newWorld(t, c), there: newWorld(t, c)}) })
	}
}

// copyOf makes a DataVolume on class that clones base of the other namespace, or of its own.
func (f *foreign) copyOf(namespace, class string, change func(*cdiv1.DataVolume)) *cdiv1.DataVolume {
	f.t.Helper()
	return f.create("copy", class, &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "base"}}, func(dv *cdiv1.DataVolume) {
		dv.Annotations = map[string]string{names.AnnotationBind: "true", clonesource.AnnotationAuthorized: namespace + "/base"}
		if change != nil {
			change(dv)
		}
	})
}

// user makes a pod that has base, and of which the controller hears.
func (w *world) user(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace, Name: name, Labels: map[string]string{names.LabelPod: "virt-launcher"},
	}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "user", Image: "user", VolumeMounts: []corev1.VolumeMount{{Name: "disk", MountPath: "/disk"}}}},
		Volumes: []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "base"},
		}}},
	}}
	w.must(w.Create(w.t.Context(), pod))
	return pod
}

func copyOfAnotherClass(t *testing.T, f *foreign) {
	f.filled("fast")
	f.copyOf(f.namespace, "local", nil)
	f.phase("copy", cdiv1.CloneScheduled)
	claim := f.claim("copy")
	notes := claim.Annotations
	if claim.Spec.DataSource != nil || notes[datavolume.AnnotationCloneType] != "copy" || notes["cdi.kubevirt.io/cloneFallbackReason"] != "Provisioners are incompatible" {
		t.Errorf("the claim is %+v", claim)
	}
	pod := f.pod("copy")
	if !slices.Contains(pod.Spec.Containers[0].Args, "--copy-from=/source") {
		t.Errorf("the pod is told %v", pod.Spec.Containers[0].Args)
	}
	f.bind("copy")
	f.play("copy", corev1.PodRunning, 0, nil)
	if c := condition(f.phase("copy", cdiv1.CloneInProgress), cdiv1.DataVolumeRunning); c.Status != corev1.ConditionTrue {
		t.Errorf("Running is %+v", c)
	}
	f.play("copy", corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:33"})
	dv := f.phase("copy", cdiv1.Succeeded)
	if c := condition(dv, cdiv1.DataVolumeRunning); dv.Annotations[names.AnnotationDigest] != "slipway1:33" || c.Message != "Clone Complete" {
		t.Errorf("the DataVolume is %+v, Running %+v", dv.ObjectMeta, c)
	}
	f.podGone("copy")
	f.tells("IncompatibleProvisioners", "CloneScheduled", "CloneInProgress", "CloneSucceeded")
}

// tells waits for events of these reasons.
func (w *world) tells(reasons ...string) {
	w.t.Helper()
	w.until("events tell of "+strings.Join(reasons, ", "), func() bool {
		var all eventsv1.EventList
		w.must(w.List(w.t.Context(), &all, client.InNamespace(w.namespace)))
		return !slices.ContainsFunc(reasons, func(reason string) bool {
			return !slices.ContainsFunc(all.Items, func(e eventsv1.Event) bool { return e.Reason == reason })
		})
	})
}

func copyAsked(t *testing.T, f *foreign) {
	f.filled("fast")
	f.copyOf(f.namespace, "fast", func(dv *cdiv1.DataVolume) { dv.Annotations[datavolume.AnnotationCloneType] = "copy" })
	f.pod("copy")
	if notes := f.claim("copy").Annotations; notes["cdi.kubevirt.io/cloneFallbackReason"] != "" {
		t.Errorf("the claim has the annotations %v", notes)
	}
	f.bind("copy")
	failed := transfer.Failed(transfer.Errorf(transfer.WrongFormat, "the volume to copy from has no file disk.img"))
	f.play("copy", corev1.PodRunning, 1, &failed)
	if c := condition(f.phase("copy", cdiv1.Failed), cdiv1.DataVolumeRunning); !strings.Contains(c.Message, "no file disk.img") {
		t.Errorf("Running is %+v", c)
	}
	f.podGone("copy")
}

func copyInUse(t *testing.T, f *foreign) {
	f.filled("fast")
	inUse := func(by string) func() bool {
		return func() bool {
			c := condition(f.dv("copy"), cdiv1.DataVolumeRunning)
			return c.Reason == "CloneSourceInUse" && strings.HasPrefix(c.Message, "pod "+f.namespace+"/"+by+" using PersistentVolumeClaim base")
		}
	}
	first := f.user("first")
	f.copyOf(f.namespace, "local", nil)
	f.until("the copy waits for the pod", inUse("first"))
	if err := f.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: "importer-copy"}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a pod that copies: %v", err)
	}
	f.must(f.Delete(t.Context(), first))
	f.bind("copy")
	f.play("copy", corev1.PodRunning, 0, nil)
	begun := f.pod("copy").UID
	f.phase("copy", cdiv1.CloneInProgress)
	second := f.user("second")
	f.until("the copy is stopped", inUse("second"))
	f.podGone("copy")
	f.must(f.Delete(t.Context(), second))
	f.until("the copy begins anew", func() bool { return f.pod("copy").UID != begun })
	f.play("copy", corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:33"})
	f.phase("copy", cdiv1.Succeeded)
}

func copyOfNothing(t *testing.T, f *foreign) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "base", Namespace: f.namespace}, Spec: *newDataVolume(f.namespace, "x").Spec.PVC}
	claim.Spec.StorageClassName = new("local")
	f.must(f.Create(t.Context(), claim))
	f.copyOf(f.namespace, "fast", nil)
	f.waits("copy", "CloneSourceNotReady")
	f.bind("base")
	f.pod("copy")
}

// copyOfNoDriver clones a claim whose volume is a folder of a node, onto its own class.
func copyOfNoDriver(t *testing.T, f *foreign) {
	f.filled("fast")
	base := f.claim("base")
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + string(base.UID)}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: base.Spec.AccessModes, StorageClassName: "fast", Capacity: base.Status.Capacity,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/disks"}},
	}}
	f.must(f.Create(t.Context(), volume))
	base.Spec.VolumeName = volume.Name
	f.must(f.Update(t.Context(), base))
	f.seen(base)
	f.copyOf(f.namespace, "fast", nil)
	f.pod("copy")
	if claim := f.claim("copy"); claim.Spec.DataSource != nil || claim.Annotations["cdi.kubevirt.io/cloneFallbackReason"] != "Provisioners are incompatible" {
		t.Errorf("the claim is %+v", claim)
	}
}

// copyOverQuota lets the namespace have no pod, and then one.
func copyOverQuota(t *testing.T, f *foreign) {
	f.filled("fast")
	f.podGone("base")
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "no-pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	f.must(f.Create(t.Context(), quota))
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard} // as its controller does
	f.must(f.Status().Update(t.Context(), quota))
	f.until("the quota holds", func() bool {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		return apierrors.IsForbidden(f.Create(t.Context(), probe, client.DryRunAll))
	})
	f.copyOf(f.namespace, "local", nil)
	if c := f.waits("copy", "ErrExceededQuota"); !strings.Contains(c.Message, "no-pods") {
		t.Errorf("Bound is %+v", c)
	}
	f.must(f.Delete(t.Context(), quota))
	f.pod("copy")
}

func copySnapshotThatGoes(t *testing.T, f *foreign) {
	snapshot := f.snapshot("kept")
	f.take(snapshot, "example.com/local", "")
	dv := f.create("copy", "fast", ofSnapshot(f.namespace), nil)
	f.pod("copy")
	f.must(f.Delete(t.Context(), snapshot)) // by somebody
	f.until("it says what is gone", func() bool {
		f.pass(dv, &lagging.Client{}) // or several, for the controller is at work on it, too
		c := condition(f.dv("copy"), cdiv1.DataVolumeRunning)
		return c.Reason == "CloneSourceNotFound" && strings.Contains(c.Message, "kept, from which PVC restored-"+string(dv.UID)+" is to be made, is gone")
	})
}
