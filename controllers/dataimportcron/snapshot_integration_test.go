//go:build integration

package dataimportcron_test

import (
	"context"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/dataimportcron"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// class is the StorageClass of the claims of these tests.
const class = "thin"

// profile makes the StorageProfile of class say what is kept, and by what class of snapshots; none when that is empty.
func (w *world) profile(format cdiv1.DataImportCronSourceFormat, snapshots string) {
	w.t.Helper()
	profile := &cdiv1.StorageProfile{}
	if err := w.Get(w.t.Context(), client.ObjectKey{Name: class}, profile); apierrors.IsNotFound(err) {
		profile.Name = class
		w.must(w.Create(w.t.Context(), profile))
		w.t.Cleanup(func() { w.must(w.Delete(context.Background(), profile)) }) // it is no namespace's
	} else {
		w.must(err)
	}
	profile.Status = cdiv1.StorageProfileStatus{DataImportCronSourceFormat: &format, Provisioner: new("example.com/thin")}
	if snapshots != "" {
		profile.Status.SnapshotClass = &snapshots
	}
	w.must(w.Status().Update(w.t.Context(), profile))
}

// thin makes a DataImportCron whose claims are of class.
func (w *world) thin(keep int32) {
	w.t.Helper()
	w.create("cron", func(cron *cdiv1.DataImportCron) {
		cron.Spec.Template.Spec.PVC.StorageClassName = new(class)
		cron.Spec.ImportsToKeep = &keep
	})
}

// snapshot waits until the snapshot of an import is asked for.
func (w *world) snapshot(name string) *snapshotv1.VolumeSnapshot {
	w.t.Helper()
	snapshot := &snapshotv1.VolumeSnapshot{}
	w.until("there is a snapshot of "+name, func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, snapshot) == nil
	})
	return snapshot
}

// take plays the snapshot controller.
func (w *world) take(name string) {
	w.t.Helper()
	snapshot := w.snapshot(name)
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: new("content-" + name), ReadyToUse: new(true)}
	w.must(w.Status().Update(w.t.Context(), snapshot))
}

// kept brings an import to its end as a snapshot, from which on the DataSource names it.
func (w *world) kept(dv *cdiv1.DataVolume) {
	w.t.Helper()
	w.end(dv.Name, transfer.Result{Digest: "slipway1:00", Labels: map[string]string{"instancetype.kubevirt.io/default-preference": "debian"}})
	w.take(dv.Name)
	w.until("the DataSource names the snapshot "+dv.Name, func() bool { return w.golden() == "snapshot/"+dv.Name })
	w.until("the import's DataVolume is gone", func() bool { return w.gone(dv.Name) })
	w.collect(dv.Name)
	w.until("the image is up to date", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "UpToDate True" })
}

// golden is what the DataSource names.
func (w *world) golden() string {
	source, _ := w.source()
	switch from := source.Spec.Source; {
	case from.PVC != nil && from.Snapshot != nil:
		return "both"
	case from.PVC != nil:
		return "pvc/" + from.PVC.Name
	case from.Snapshot != nil:
		return "snapshot/" + from.Snapshot.Name
	}
	return ""
}

func (w *world) noSnapshot(name string) bool {
	err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, &snapshotv1.VolumeSnapshot{})
	return apierrors.IsNotFound(err)
}

func TestImportsAreKeptAsSnapshots(t *testing.T) {
	w := start(t)
	w.profile(cdiv1.DataImportCronSourceFormatSnapshot, "snaps")
	w.thin(2)
	first := w.importing("cron")
	w.end(first.Name, transfer.Result{Digest: "slipway1:00", Labels: map[string]string{"instancetype.kubevirt.io/default-preference": "debian"}})
	snapshot := w.snapshot(first.Name)
	if spec := snapshot.Spec; *spec.Source.PersistentVolumeClaimName != first.Name || *spec.VolumeSnapshotClassName != "snaps" {
		t.Errorf("the snapshot asks for %+v", spec)
	}
	w.until("the snapshot is told of", func() bool { return w.reason("cron", cdiv1.DataImportCronProgressing) == "ImportProgressing True" })
	if got := w.golden(); got != "" || w.gone(first.Name) {
		t.Errorf("while the snapshot is taken, the DataSource names %q; the DataVolume is gone: %t", got, w.gone(first.Name))
	}
	w.take(first.Name)
	w.until("the DataSource names the snapshot", func() bool { return w.golden() == "snapshot/"+first.Name })
	w.until("the import's DataVolume is gone", func() bool { return w.gone(first.Name) })
	w.collect(first.Name)
	w.until("the image is up to date", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "UpToDate True" })
	w.checkKept(first.Name)

	w.later(2*time.Hour, "two", "cron")
	second := w.importing("cron", string(first.UID))
	if got := w.golden(); got != "snapshot/"+first.Name {
		t.Errorf("the DataSource names %s while another image is imported", got)
	}
	w.kept(second)

	w.later(2*time.Hour, "one", "cron") // the image of before comes back: nothing is imported
	w.until("the DataSource names the image of before", func() bool { return w.golden() == "snapshot/"+first.Name })
	if !w.gone(first.Name) {
		t.Error("it is imported again")
	}
	w.later(2*time.Hour, "three", "cron")
	third := w.importing("cron")
	w.kept(third)
	w.until("what was used longest ago is gone", func() bool { return w.noSnapshot(second.Name) })
	if w.noSnapshot(first.Name) {
		t.Error("the image before is gone, too")
	}

	snapshot = w.snapshot(third.Name)
	w.must(w.Delete(t.Context(), snapshot)) // by somebody, and nothing wakes the controller
	w.kept(w.importing("cron", string(third.UID)))
}

// checkKept looks at what a snapshot and the status say of an image.
func (w *world) checkKept(name string) {
	w.t.Helper()
	snapshot := w.snapshot(name)
	if snapshot.Labels[dataimportcron.LabelCron] != "cron" || snapshot.Annotations[dataimportcron.AnnotationLastUse] == "" || snapshot.Annotations[names.AnnotationDigest] != "slipway1:00" {
		w.t.Errorf("the snapshot is %+v", snapshot.ObjectMeta)
	}
	if status := w.cron("cron").Status; *status.SourceFormat != cdiv1.DataImportCronSourceFormatSnapshot || status.LastImportedPVC.Name != name || status.LastImportTimestamp == nil {
		w.t.Errorf("the status is %+v", status)
	}
	if source, _ := w.source(); source.Labels["instancetype.kubevirt.io/default-preference"] != "debian" {
		w.t.Errorf("the DataSource is %+v", source.ObjectMeta)
	}
}

func TestImportsAreKeptAsTheProfileSaysNow(t *testing.T) {
	w := start(t)
	w.profile(cdiv1.DataImportCronSourceFormatPvc, "")
	w.thin(1)
	first := w.importing("cron")
	w.end(first.Name, transfer.Result{Digest: "slipway1:00"})
	w.until("the DataSource names the claim", func() bool { return w.golden() == "pvc/"+first.Name })

	w.profile(cdiv1.DataImportCronSourceFormatSnapshot, "")
	w.until("it is told that there is no class", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "SnapshotNotReady False" })
	if got := w.golden(); got != "pvc/"+first.Name {
		t.Errorf("the DataSource names %q without a snapshot", got)
	}
	w.profile(cdiv1.DataImportCronSourceFormatSnapshot, "snaps")
	w.take(first.Name)
	w.until("the DataSource names the snapshot alone", func() bool { return w.golden() == "snapshot/"+first.Name })
	w.until("the import's DataVolume is gone", func() bool { return w.gone(first.Name) })
	w.collect(first.Name)

	w.profile(cdiv1.DataImportCronSourceFormatPvc, "snaps")
	w.later(2*time.Hour, "two", "cron")
	second := w.importing("cron", string(first.UID))
	w.end(second.Name, transfer.Result{Digest: "slipway1:01"})
	w.until("the DataSource names the new claim alone", func() bool { return w.golden() == "pvc/"+second.Name })
	w.until("the old snapshot is gone", func() bool { return w.noSnapshot(first.Name) })
	if w.gone(second.Name) || !w.noSnapshot(second.Name) {
		t.Error("the claim does not stay, or there is a snapshot of it")
	}
}

func TestASnapshotOfSomebodyElseIsLeftAlone(t *testing.T) {
	w := start(t)
	w.profile(cdiv1.DataImportCronSourceFormatSnapshot, "snaps")
	w.thin(1)
	dv := w.importing("cron")
	theirs := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: dv.Name},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("theirs")}},
	}
	w.must(w.Create(t.Context(), theirs))
	theirs.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true)}
	w.must(w.Status().Update(t.Context(), theirs))
	w.end(dv.Name, transfer.Result{Digest: "slipway1:00"})
	w.until("the snapshot in the way is told of", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "ErrResourceExists False" })
	if got := w.golden(); got != "" || w.gone(dv.Name) {
		t.Errorf("the DataSource names %q; the DataVolume is gone: %t", got, w.gone(dv.Name))
	}
	w.must(w.Delete(t.Context(), theirs))
	w.later(time.Minute, "one", "cron")
	w.take(dv.Name)
	w.until("the DataSource names the snapshot", func() bool { return w.golden() == "snapshot/"+dv.Name })
}

func TestAClaimOfSomebodyElseIsLeftAlone(t *testing.T) {
	w := start(t)
	theirs := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "golden-0123456789ab"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	w.must(w.Create(t.Context(), theirs))
	w.create("cron", func(cron *cdiv1.DataImportCron) {
		cron.Spec.Schedule = ""
		cron.Annotations = map[string]string{dataimportcron.AnnotationDesired: "sha256:0123456789ab"}
	})
	first := w.importing("cron")
	w.until("the claim in the way is told of", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "ErrResourceExists False" })
	newer := []byte(`{"metadata":{"annotations":{"` + dataimportcron.AnnotationDesired + `":"sha256:ba9876543210"}}}`)
	w.must(w.Patch(t.Context(), w.cron("cron"), client.RawPatch("application/merge-patch+json", newer)))
	second := w.importing("cron", string(first.UID))
	w.until("the first import is given up", func() bool { return w.gone(first.Name) })
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
	if second.Name != "golden-ba9876543210" || theirs.DeletionTimestamp != nil || len(theirs.Labels) > 0 {
		t.Errorf("the newer image is imported as %s; the claim in the way is %+v", second.Name, theirs.ObjectMeta)
	}
}

func TestANewerImageDoesNotWaitForASnapshot(t *testing.T) {
	w := start(t)
	w.profile(cdiv1.DataImportCronSourceFormatSnapshot, "snaps")
	w.thin(2)
	first := w.importing("cron")
	w.end(first.Name, transfer.Result{Digest: "slipway1:00"})
	snapshot := w.snapshot(first.Name)
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(false), Error: &snapshotv1.VolumeSnapshotError{Message: new("the pool is full")}}
	w.must(w.Status().Update(t.Context(), snapshot))
	w.until("the failure is told", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "SnapshotNotReady False" })
	if w.gone(first.Name) || w.noSnapshot(first.Name) {
		t.Error("it is given up although there is no newer image")
	}
	w.later(2*time.Hour, "two", "cron")
	w.until("nothing is left of the image before", func() bool { return w.gone(first.Name) && w.noSnapshot(first.Name) })
	w.collect(first.Name)
	second := w.importing("cron", string(first.UID))
	w.kept(second)

	w.profile(cdiv1.DataImportCronSourceFormatPvc, "")
	w.later(2*time.Hour, "three", "cron")
	third := w.importing("cron", string(second.UID))
	w.end(third.Name, transfer.Result{Digest: "slipway1:01"})
	w.until("the DataSource names the claim", func() bool { return w.golden() == "pvc/"+third.Name })
	w.profile(cdiv1.DataImportCronSourceFormatSnapshot, "")
	w.until("it is told that there is no class", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "SnapshotNotReady False" })
	w.later(2*time.Hour, "four", "cron")
	fourth := w.importing("cron", string(third.UID))
	if got := w.golden(); got != "pvc/"+third.Name || w.gone(third.Name) {
		t.Errorf("while another image is imported the DataSource names %s; the DataVolume is gone: %t", got, w.gone(third.Name))
	}
	w.profile(cdiv1.DataImportCronSourceFormatSnapshot, "snaps")
	w.kept(fourth)
	w.until("what was used longest ago is gone", func() bool { return w.noSnapshot(second.Name) })
	if w.gone(third.Name) {
		t.Error("the image before is gone, too")
	}
}

// TestASnapshotThatSaysNothingGoes has nobody take snapshots.
func TestASnapshotThatSaysNothingGoes(t *testing.T) {
	w := start(t)
	w.profile(cdiv1.DataImportCronSourceFormatSnapshot, "snaps")
	w.thin(2)
	first := w.importing("cron")
	w.end(first.Name, transfer.Result{Digest: "slipway1:00"})
	snapshot := w.snapshot(first.Name)
	w.later(20*time.Minute, "one", "cron")
	w.until("it is told", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "SnapshotNotReady False" })
	w.later(2*time.Hour, "two", "cron")
	w.until("nothing is left of the image before", func() bool { return w.gone(first.Name) && w.noSnapshot(first.Name) })
	w.collect(first.Name)
	second := w.importing("cron", string(first.UID))

	snapshot.ResourceVersion, snapshot.UID, snapshot.ManagedFields = "", "", nil
	w.must(w.Create(t.Context(), snapshot)) // one of before that has come back, without its claim
	w.kept(second)
	w.later(2*time.Hour, "one", "cron")
	w.until("it goes", func() bool {
		now := &snapshotv1.VolumeSnapshot{}
		err := w.Get(t.Context(), client.ObjectKeyFromObject(snapshot), now)
		return apierrors.IsNotFound(err) || now.UID != snapshot.UID
	})
	again := w.importing("cron", string(second.UID))
	if again.Name != first.Name {
		t.Errorf("the image of before is imported as %s", again.Name)
	}
	w.kept(again)
}

// TestAKilledControllerGoesOn stops the controller between the writes of keeping an import as a snapshot.
func TestAKilledControllerGoesOn(t *testing.T) {
	w := start(t)
	w.profile(cdiv1.DataImportCronSourceFormatSnapshot, "snaps")
	w.thin(1)
	dv := w.importing("cron")
	w.end(dv.Name, transfer.Result{Digest: "slipway1:00"})
	w.snapshot(dv.Name)
	w.stop() // the snapshot becomes ready meanwhile
	w.take(dv.Name)
	w.begin()
	w.until("the DataSource names the snapshot", func() bool { return w.golden() == "snapshot/"+dv.Name })
	w.until("the import's DataVolume is gone", func() bool { return w.gone(dv.Name) })
	w.stop() // the claim goes meanwhile
	w.collect(dv.Name)
	w.begin()
	w.until("the image is up to date", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "UpToDate True" })
	w.later(time.Minute, "one", "cron")
	if status := w.cron("cron").Status; len(status.CurrentImports) != 1 || status.CurrentImports[0].DataVolumeName != dv.Name || !w.gone(dv.Name) {
		t.Errorf("the status is %+v", status)
	}
}
