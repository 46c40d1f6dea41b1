//go:build integration

package dataimportcron

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/clonesource"
)

// TestAnImageThatIsNeededStays has two older images too many, a claim and a snapshot. Somebody needs one of them.
func TestAnImageThatIsNeededStays(t *testing.T) {
	l, profile := thinLife(t)
	l.keepAs(profile, cdiv1.DataImportCronSourceFormatPvc)
	elsewhere := l.anotherNamespace()
	for name, c := range map[string]struct {
		need     func(old string) client.Object // makes who needs it
		snapshot bool                           // whether it is the snapshot
	}{
		"led":            {need: l.ledTo},
		"another-source": {need: func(old string) client.Object { return l.sourceOf(elsewhere, old, false) }},
		"of-a-snapshot":  {need: func(old string) client.Object { return l.sourceOf(elsewhere, old, true) }, snapshot: true},
		"allowed":        {need: func(old string) client.Object { return l.allowedTo(elsewhere, l.namespace+"/"+old) }},
		"allowed-snapshot": {
			need: func(old string) client.Object { return l.allowedTo(elsewhere, "volumesnapshots/"+l.namespace+"/"+old) }, snapshot: true,
		},
		"named":    {need: l.cloneOf},
		"consumer": {need: func(old string) client.Object { return l.waiting(old, kindSnapshot) }, snapshot: true},
		"claimed":  {need: func(old string) client.Object { return l.waiting(old, kindClaim) }},
		"copied":   {need: l.copying},
		"copied-bound": {need: func(old string) client.Object {
			claim := l.copying(old)
			l.must(l.direct.Status().Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Bound"}}`))))
			return claim
		}},
		"snapshotting": {need: l.snapshotting},
	} {
		l.name = name
		l.imported()
		l.keepOne()
		old := "old-" + name
		claim, snapshot := l.claimOf(old), &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: old}}
		claim.Labels = map[string]string{LabelCron: name}
		snapshot.Labels = claim.Labels
		snapshot.Spec.Source.VolumeSnapshotContentName = new("content-" + old)
		l.must(l.direct.Create(t.Context(), claim))
		l.must(l.direct.Create(t.Context(), snapshot))
		needed, free := client.Object(claim), client.Object(snapshot)
		if c.snapshot {
			needed, free = free, needed
		}
		user := c.need(old)
		l.pass(3)
		if l.goes(needed) {
			t.Errorf("%s: %T %s goes", name, needed, old)
		}
		if !l.goes(free) {
			t.Errorf("%s: %T %s stays", name, free, old)
		}
		l.must(l.direct.Delete(t.Context(), user))
		l.must(client.IgnoreNotFound(l.direct.Patch(t.Context(), user, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
		l.pass(3)
		if !l.goes(needed) {
			t.Errorf("%s: %T %s stays for nobody", name, needed, old)
		}
	}
}

// keepOne has the DataImportCron keep one import only.
func (l *life) keepOne() {
	l.Helper()
	cron := &cdiv1.DataImportCron{}
	l.found(cron)
	cron.Spec.ImportsToKeep = new(int32(1))
	l.must(l.direct.Update(l.Context(), cron))
}

// goes says whether an object is gone, or about to go.
func (l *life) goes(object client.Object) bool {
	l.Helper()
	err := l.direct.Get(l.Context(), client.ObjectKeyFromObject(object), object)
	if !apierrors.IsNotFound(err) {
		l.must(err)
	}
	return err != nil || object.GetDeletionTimestamp() != nil
}

// ledTo has somebody lead the DataSource himself, to a claim.
func (l *life) ledTo(claim string) client.Object {
	l.Helper()
	source := &cdiv1.DataSource{}
	l.found(source)
	source.Labels, source.Spec.Source.PVC.Name = nil, claim
	l.must(l.direct.Update(l.Context(), source))
	return source
}

// sourceOf makes a DataSource of a namespace that names an image.
func (l *life) sourceOf(namespace, image string, snapshot bool) client.Object {
	l.Helper()
	source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: image}}
	source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: l.namespace, Name: image}
	if snapshot {
		source.Spec.Source = cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: l.namespace, Name: image}}
	}
	l.must(l.direct.Create(l.Context(), source))
	return source
}

// volume makes a DataVolume that clones.
func (l *life) volume(dv *cdiv1.DataVolume) client.Object {
	l.Helper()
	dv.Spec.PVC = &l.claimOf("").Spec
	l.must(l.direct.Create(l.Context(), dv))
	return dv
}

// allowedTo makes a DataVolume of a namespace that may clone what mark says, by a DataSource that has moved on since.
func (l *life) allowedTo(namespace, mark string) client.Object {
	l.Helper()
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: l.name, Annotations: map[string]string{clonesource.AnnotationAuthorized: mark}}}
	dv.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Namespace: &l.namespace, Name: l.name}
	return l.volume(dv)
}

// cloneOf makes a DataVolume that names a claim.
func (l *life) cloneOf(claim string) client.Object {
	l.Helper()
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: "clone-" + claim}}
	dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: claim}}
	return l.volume(dv)
}

// waiting makes a claim that waits to be made from an image.
func (l *life) waiting(image, kind string) client.Object {
	l.Helper()
	claim := l.claimOf("clone-" + image)
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kind, Name: image}
	if kind == kindSnapshot {
		claim.Spec.DataSource.APIGroup = new(snapshotv1.GroupName)
	}
	l.must(l.direct.Create(l.Context(), claim))
	return claim
}

// copying makes a claim into which another is being copied.
func (l *life) copying(claim string) client.Object {
	l.Helper()
	into := l.claimOf("copy-of-" + claim)
	into.Annotations = map[string]string{datavolume.AnnotationCopiedFrom: l.namespace + "/" + claim}
	l.must(l.direct.Create(l.Context(), into))
	return into
}

// snapshotting makes a snapshot that is being taken of a claim.
func (l *life) snapshotting(claim string) client.Object {
	l.Helper()
	snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: "clone-" + claim}}
	snapshot.Spec.Source.PersistentVolumeClaimName = &claim
	l.must(l.direct.Create(l.Context(), snapshot))
	return snapshot
}
