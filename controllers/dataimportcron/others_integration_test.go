//go:build integration

package dataimportcron

import (
	"context"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/tests/fixture/breaking"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// thinLife begins lives whose claims are of class thin, the profile of which is returned.
func thinLife(t *testing.T) (*life, *cdiv1.StorageProfile) {
	t.Helper()
	l := newLife(t)
	profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: "thin"}}
	l.must(l.direct.Create(t.Context(), profile))
	t.Cleanup(func() { l.must(l.direct.Delete(context.Background(), profile)) }) // it is no namespace's
	l.keepAs(profile, cdiv1.DataImportCronSourceFormatSnapshot)
	return l, profile
}

// keepAs makes the profile say what imports are kept as.
func (l *life) keepAs(profile *cdiv1.StorageProfile, format cdiv1.DataImportCronSourceFormat) {
	l.Helper()
	profile.Status = cdiv1.StorageProfileStatus{DataImportCronSourceFormat: &format, SnapshotClass: new("snaps")}
	l.must(l.direct.Status().Update(l.Context(), profile))
}

// asSnapshot has an import kept as a snapshot, which is all that is left of it.
func (l *life) asSnapshot(name string) {
	l.Helper()
	l.keep(name, &breaking.Writes{N: 1000})
}

// pass makes passes over the DataImportCron.
func (l *life) pass(times int) {
	l.Helper()
	l.passOf(l.direct, times)
}

// passOf makes passes of a controller that reads and writes by c.
func (l *life) passOf(c client.Client, times int) {
	l.Helper()
	for range times {
		_, err := l.controller(c).Reconcile(l.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: l.namespace, Name: l.name}})
		l.must(err)
	}
}

// claimOf is a claim of class thin, not made yet.
func (l *life) claimOf(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("thin"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
}

// TestADiskOfAnImportsNameIsLeftAlone has a user make a disk from a snapshot, by the name that its claim once had.
func TestADiskOfAnImportsNameIsLeftAlone(t *testing.T) {
	l, profile := thinLife(t)
	for name, c := range map[string]struct {
		format cdiv1.DataImportCronSourceFormat
		note   string // on the claim: how its filling has ended
		byDV   bool   // whether it is a DataVolume's
	}{
		"claim":               {format: cdiv1.DataImportCronSourceFormatSnapshot},
		"claim-as-pvc":        {format: cdiv1.DataImportCronSourceFormatPvc},
		"filled-as-pvc":       {format: cdiv1.DataImportCronSourceFormatPvc, note: "Succeeded"},
		"datavolume":          {format: cdiv1.DataImportCronSourceFormatSnapshot, note: "Succeeded", byDV: true},
		"datavolume-as-pvc":   {format: cdiv1.DataImportCronSourceFormatPvc, note: "Succeeded", byDV: true},
		"datavolume-underway": {format: cdiv1.DataImportCronSourceFormatSnapshot, byDV: true},
	} {
		l.keepAs(profile, cdiv1.DataImportCronSourceFormatSnapshot)
		l.asSnapshot(name)
		l.keepAs(profile, c.format)
		claim, dv := l.claimOf(name), &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}}
		if c.note != "" {
			claim.Annotations = map[string]string{datavolume.AnnotationPodPhase: c.note}
		}
		if c.byDV {
			dv.Spec = cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: l.namespace, Name: name}}, PVC: &claim.Spec}
			l.must(l.direct.Create(t.Context(), dv))
			if c.note != "" {
				dv.Status.Phase = cdiv1.Succeeded
				l.must(l.direct.Status().Update(t.Context(), dv))
			}
			claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind(kindDataVolume))}
		}
		l.must(l.direct.Create(t.Context(), claim))
		l.pass(6)
		source, snapshot := &cdiv1.DataSource{}, &snapshotv1.VolumeSnapshot{}
		if !l.found(claim) || claim.DeletionTimestamp != nil || claim.Labels[LabelCron] != "" {
			t.Errorf("%s: the user's claim is %+v", name, claim.ObjectMeta)
		}
		if c.byDV && (!l.found(dv) || dv.DeletionTimestamp != nil) {
			t.Errorf("%s: the user's DataVolume is %+v", name, dv.ObjectMeta)
		}
		if !l.found(snapshot) || snapshot.DeletionTimestamp != nil || !l.found(source) || source.Spec.Source.Snapshot == nil {
			t.Errorf("%s: the snapshot is %+v, the DataSource names %+v", name, snapshot.ObjectMeta, source.Spec.Source)
		}
	}
}

// TestASnapshotOutlivesItsClaim has imports be kept as claims again while the claim of one that is kept as a snapshot is
// about to go, and the controller does not see that.
func TestASnapshotOutlivesItsClaim(t *testing.T) {
	l, profile := thinLife(t)
	for name, c := range map[string]struct {
		status cdiv1.StorageProfileStatus // what the profile says then
		lags   bool                       // whether the cache still shows the DataVolume that is gone
	}{
		"collected":  {status: cdiv1.StorageProfileStatus{DataImportCronSourceFormat: new(cdiv1.DataImportCronSourceFormatPvc)}},
		"lagging":    {status: cdiv1.StorageProfileStatus{DataImportCronSourceFormat: new(cdiv1.DataImportCronSourceFormatPvc)}, lags: true},
		"no-profile": {lags: true},
	} {
		l.keepAs(profile, cdiv1.DataImportCronSourceFormatSnapshot)
		l.asSnapshot(name)
		claim := l.claimOf(name)
		claim.Labels, claim.Annotations = map[string]string{LabelCron: name}, map[string]string{datavolume.AnnotationPodPhase: "Succeeded"}
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name, Labels: claim.Labels}}
		dv.Spec = cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, PVC: &claim.Spec}
		l.must(l.direct.Create(t.Context(), dv))
		dv.Status.Phase = cdiv1.Succeeded
		l.must(l.direct.Status().Update(t.Context(), dv))
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind(kindDataVolume))}
		l.must(l.direct.Create(t.Context(), claim))
		l.must(l.direct.Delete(t.Context(), dv))
		profile.Status = c.status
		l.must(l.direct.Status().Update(t.Context(), profile))
		cache := &lagging.Client{Client: l.direct}
		if c.lags {
			cache.Past = []client.Object{dv}
		}
		l.passOf(cache, 3)
		l.pass(3)
		source, snapshot := &cdiv1.DataSource{}, &snapshotv1.VolumeSnapshot{}
		if !l.found(snapshot) || snapshot.DeletionTimestamp != nil || !l.found(source) || source.Spec.Source.Snapshot == nil {
			t.Errorf("%s: the snapshot is %+v, the DataSource names %+v", name, snapshot.ObjectMeta, source.Spec.Source)
		}
	}
}

// TestAClaimStaysWhileItsDataSourceNamesIt has the DataSource be somebody's who leads it himself.
func TestAClaimStaysWhileItsDataSourceNamesIt(t *testing.T) {
	l, _ := thinLife(t)
	l.name = "led"
	l.imported()
	source, dv, claim, snapshot := &cdiv1.DataSource{}, &cdiv1.DataVolume{}, &corev1.PersistentVolumeClaim{}, &snapshotv1.VolumeSnapshot{}
	l.found(source)
	source.Labels = nil
	l.must(l.direct.Update(t.Context(), source))
	l.pass(2)
	l.found(snapshot)
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true)}
	l.must(l.direct.Status().Update(t.Context(), snapshot))
	l.pass(4)
	if !l.found(dv) || !l.found(claim) || claim.DeletionTimestamp != nil {
		t.Errorf("the DataSource names a claim that goes: %+v", claim.ObjectMeta)
	}
	l.found(source)
	source.Spec.Source = cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: l.namespace, Name: l.name}}
	l.must(l.direct.Update(t.Context(), source))
	l.pass(1)
	if l.found(dv) {
		t.Errorf("the DataSource names the snapshot, and the DataVolume stays: %+v", dv.ObjectMeta)
	}
}

// TestAClaimStaysWhileItIsNeeded has a clone wait for its consumer, and a pod use the disk.
func TestAClaimStaysWhileItIsNeeded(t *testing.T) {
	l, _ := thinLife(t)
	l.name = "needed"
	l.imported()
	clone, dv, snapshot := l.claimOf("clone"), &cdiv1.DataVolume{}, &snapshotv1.VolumeSnapshot{}
	clone.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kindClaim, Name: l.name}
	l.must(l.direct.Create(t.Context(), clone))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: "user"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "user", Image: "registry.local/user:test"}},
		Volumes: []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: l.name},
		}}},
	}}
	l.must(l.direct.Create(t.Context(), pod))
	l.pass(2)
	l.found(snapshot)
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true)}
	l.must(l.direct.Status().Update(t.Context(), snapshot))
	stays := func(because string) {
		l.Helper()
		l.pass(4)
		source := &cdiv1.DataSource{}
		if !l.found(dv) || !l.found(source) || source.Spec.Source.Snapshot == nil || source.Spec.Source.PVC != nil {
			t.Errorf("%s; the DataVolume is %+v, the DataSource names %+v", because, dv.ObjectMeta, source.Spec.Source)
		}
	}
	stays("a clone waits for its consumer, and a pod uses the disk")
	clone.Status.Phase = corev1.ClaimBound
	l.must(l.direct.Status().Update(t.Context(), clone))
	stays("a pod uses the disk")
	pod.Status.Phase = corev1.PodSucceeded
	l.must(l.direct.Status().Update(t.Context(), pod))
	l.pass(1)
	if l.found(dv) {
		t.Errorf("the DataVolume stays: %+v", dv.ObjectMeta)
	}
}

// TestADataSourceIsWrittenAsItIs has somebody begin to lead the DataSource himself, which the cache does not show.
func TestADataSourceIsWrittenAsItIs(t *testing.T) {
	l, profile := thinLife(t)
	l.keepAs(profile, cdiv1.DataImportCronSourceFormatPvc)
	for name, behind := range map[string]func(past *cdiv1.DataSource) *lagging.Client{
		"taken": func(past *cdiv1.DataSource) *lagging.Client { return &lagging.Client{Past: []client.Object{past}} },
		"made":  func(past *cdiv1.DataSource) *lagging.Client { return &lagging.Client{Unseen: []client.Object{past}} },
	} {
		l.name = name
		l.imported()
		source := &cdiv1.DataSource{}
		l.found(source)
		source.Spec.Source.PVC.Name = "older"
		l.must(l.direct.Update(t.Context(), source))
		cache := behind(source.DeepCopy())
		cache.Client = l.direct
		source.Labels, source.Spec.Source.PVC.Name = nil, "theirs"
		l.must(l.direct.Update(t.Context(), source))
		l.passOf(cache, 2)
		l.pass(2)
		if l.found(source); len(source.Labels) > 0 || source.Spec.Source.PVC.Name != "theirs" {
			t.Errorf("%s: the DataSource is %+v, and names %+v", name, source.ObjectMeta, source.Spec.Source.PVC)
		}
	}
}

// TestADataSourceDoesNotGoBack has a controller be killed after it wrote the DataSource, before it wrote so into the status, and imports
// be kept as snapshots then, of which none can be taken.
func TestADataSourceDoesNotGoBack(t *testing.T) {
	l, profile := thinLife(t)
	l.name = "newer"
	l.imported()
	cron, source := &cdiv1.DataImportCron{}, &cdiv1.DataSource{}
	l.found(cron)
	cron.Status.LastImportedPVC.Name = "older"
	l.must(l.direct.Update(t.Context(), cron))
	profile.Status.SnapshotClass = nil
	l.must(l.direct.Status().Update(t.Context(), profile))
	l.pass(3)
	l.found(source)
	l.found(cron)
	if from := source.Spec.Source; from.PVC == nil || from.PVC.Name != l.name || cron.Status.LastImportedPVC.Name != l.name {
		t.Errorf("the DataSource names %+v and %+v; the last import is %+v", from.PVC, from.Snapshot, cron.Status.LastImportedPVC)
	}
}
