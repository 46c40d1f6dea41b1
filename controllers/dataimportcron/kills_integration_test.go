//go:build integration

package dataimportcron

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/breaking"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// TestKeepingASnapshotSurvivesKills ends the controller before and after each of the writes by which an import
// becomes a snapshot; another one goes on. At no moment does the DataSource name what is not there.
func TestKeepingASnapshotSurvivesKills(t *testing.T) {
	l, _ := thinLife(t)
	for n := 1; ; n++ {
		before := &breaking.Writes{N: n}
		l.keep(fmt.Sprintf("before-%d", n), before)
		if !before.Broken {
			if n < 5 {
				t.Errorf("an import is kept with %d writes only", n-1)
			}
			return
		}
		l.keep(fmt.Sprintf("after-%d", n), &breaking.Writes{N: n, After: true})
	}
}

// life is that of DataImportCrons, one after the other. It plays whatever else there is in a cluster.
type life struct {
	*testing.T
	direct    client.WithWatch
	namespace string
	name      string // of the DataImportCron, its DataSource, and its import
}

// Server is of all tests of the package, each of which has a namespace of it.
var Server apiserver.Shared

// newLife begins lives in a namespace of their own.
func newLife(t *testing.T) *life {
	t.Helper()
	config := Server.Start(t, apiserver.Only(t, "../hyperconverged/components/crds", "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	direct, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	l := &life{T: t, direct: direct}
	l.must(err)
	l.namespace = l.anotherNamespace()
	return l
}

// anotherNamespace makes a namespace.
func (l *life) anotherNamespace() string {
	l.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "images-"}}
	l.must(l.direct.Create(l.Context(), namespace))
	return namespace.Name
}

func (l *life) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// found reads an object of the life's, and reports whether it is there.
func (l *life) found(object client.Object) bool {
	l.Helper()
	err := l.direct.Get(l.Context(), client.ObjectKey{Namespace: l.namespace, Name: l.name}, object)
	if err != nil && !apierrors.IsNotFound(err) {
		l.Fatal(err)
	}
	return err == nil
}

// TestAnImportThatHasBegunIsNoGarbage has a controller that was killed, or whose cache lags, meet an import that
// the DataImportCron does not name yet.
func TestAnImportThatHasBegunIsNoGarbage(t *testing.T) {
	l := newLife(t)
	l.name = "begun"
	l.imported()
	cron, old := &cdiv1.DataImportCron{}, &cdiv1.DataImportCron{}
	l.found(cron)
	cron.Spec.ImportsToKeep = new(int32(1))
	cron.Annotations[AnnotationDesired] = "sha256:ffffffffffffffff"
	l.must(l.direct.Update(t.Context(), cron))
	l.found(old)
	dv, err := newDataVolume(cron, newest{digest: cron.Annotations[AnnotationDesired]})
	l.must(err)
	l.must(l.direct.Create(t.Context(), dv))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: dv.Name, Labels: dv.Labels}, Spec: *dv.Spec.PVC}
	claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	l.must(l.direct.Create(t.Context(), claim))
	stays := func(when string) {
		l.Helper()
		l.must(l.direct.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
		l.found(cron)
		if dv.DeletionTimestamp != nil || cron.Status.CurrentImports[0].DataVolumeName != dv.Name {
			t.Errorf("%s, the DataVolume is %+v, the status %+v", when, dv.ObjectMeta, cron.Status)
		}
	}
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cron)}
	_, err = l.controller(l.direct).Reconcile(t.Context(), request)
	l.must(err)
	stays("before its beginning was noted")
	old.Annotations[AnnotationDesired] = someDigest
	behind := &lagging.Client{Client: l.direct, Past: []client.Object{old}}
	_, err = l.controller(behind).Reconcile(t.Context(), request)
	l.must(err)
	stays("with an old cache")
}

// killed is a client that breaks with writes.
func killed(c client.WithWatch, writes *breaking.Writes) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return writes.Do(func() error { return c.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return writes.Do(func() error { return c.Delete(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return writes.Do(func() error { return c.Patch(ctx, object, patch, options...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			return writes.Do(func() error { return c.Apply(ctx, object, options...) })
		},
	})
}

func (l *life) controller(c client.Client) *Reconciler {
	return &Reconciler{Client: c, live: l.direct, events: events.NewFakeRecorder(100), now: time.Now}
}

// keep lets a controller that breaks, and then another, make a snapshot of an import that has ended.
func (l *life) keep(name string, writes *breaking.Writes) {
	l.Helper()
	l.name = name
	l.imported()
	r := l.controller(killed(l.direct, writes))
	for range 40 {
		_, err := r.Reconcile(l.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: l.namespace, Name: name}})
		switch {
		case errors.Is(err, breaking.ErrKilled):
			r = l.controller(l.direct)
		case err != nil:
			l.Fatal(err)
		}
		if l.play() {
			return
		}
	}
	l.Fatalf("killed %s, the import is never kept", writes)
}

// imported makes a DataImportCron whose import has just ended, while its DataSource names the claim: imports were
// kept as claims until now.
func (l *life) imported() {
	l.Helper()
	meta := metav1.ObjectMeta{Namespace: l.namespace, Name: l.name, Labels: map[string]string{LabelCron: l.name}}
	spec := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("thin"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	from := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://example.com"}}
	dv := &cdiv1.DataVolume{ObjectMeta: *meta.DeepCopy(), Spec: cdiv1.DataVolumeSpec{Source: from, PVC: &spec}}
	l.must(l.direct.Create(l.Context(), dv))
	dv.Status.Phase = cdiv1.Succeeded
	l.must(l.direct.Status().Update(l.Context(), dv))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: *meta.DeepCopy(), Spec: spec}
	claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	l.must(l.direct.Create(l.Context(), claim))
	source := &cdiv1.DataSource{ObjectMeta: *meta.DeepCopy()}
	maps.Copy(source.Labels, map[string]string{names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "storage"})
	source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: l.namespace, Name: l.name}
	l.must(l.direct.Create(l.Context(), source))
	cron := &cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.name, Annotations: map[string]string{AnnotationDesired: someDigest}},
		Spec:       cdiv1.DataImportCronSpec{ManagedDataSource: l.name, Template: cdiv1.DataVolume{Spec: dv.Spec}},
		Status: cdiv1.DataImportCronStatus{
			CurrentImports:  []cdiv1.ImportStatus{{DataVolumeName: l.name, Digest: someDigest}},
			LastImportedPVC: source.Spec.Source.PVC, SourceFormat: new(cdiv1.DataImportCronSourceFormatPvc),
		},
	}
	l.must(l.direct.Create(l.Context(), cron))
}

// play does what storage and the garbage collector do, looks at what the DataSource names, and reports whether all is done.
func (l *life) play() bool {
	l.Helper()
	snapshot, dv, claim, source, cron := &snapshotv1.VolumeSnapshot{}, &cdiv1.DataVolume{}, &corev1.PersistentVolumeClaim{}, &cdiv1.DataSource{}, &cdiv1.DataImportCron{}
	isTaken, isClaim := l.found(snapshot), l.found(claim)
	ready := isTaken && snapshot.Status != nil && *snapshot.Status.ReadyToUse
	if !l.found(source) || !l.found(cron) {
		l.Fatal("the DataSource or its DataImportCron is gone")
	}
	switch from := source.Spec.Source; {
	case from.Snapshot == nil && (from.PVC == nil || !isClaim), from.Snapshot != nil && !ready:
		l.Fatalf("the DataSource names %+v; there is a claim: %t, a snapshot: %t, that is ready: %t", from, isClaim, isTaken, ready)
	}
	if isTaken && !ready {
		snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true)}
		l.must(l.direct.Status().Update(l.Context(), snapshot))
	}
	if l.found(dv) {
		return false
	}
	if isClaim {
		claim.Finalizers = nil
		l.must(l.direct.Update(l.Context(), claim))
		l.must(client.IgnoreNotFound(l.direct.Delete(l.Context(), claim)))
		return false
	}
	format := cron.Status.SourceFormat
	return source.Spec.Source.PVC == nil && format != nil && *format == cdiv1.DataImportCronSourceFormatSnapshot && snapshot.Annotations[AnnotationLastUse] != ""
}
