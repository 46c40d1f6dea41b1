//go:build integration

package populator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// errKilled is what a controller meets that is killed.
var errKilled = errors.New("killed")

// killer ends a controller at one of its writes: before it, or after it.
type killer struct {
	client.WithWatch
	at    int // the number of the write, from 1; 0 for none
	after bool
	count int
}

func (k *killer) write(do func() error) error {
	k.count++
	switch {
	case k.at == 0 || k.count < k.at:
		return do()
	case k.count == k.at && k.after:
		if err := do(); err != nil {
			return err
		}
	}
	return errKilled
}

// client is the client of a controller that k kills.
func (k *killer) client() client.Client {
	return interceptor.NewClient(k.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return k.write(func() error { return c.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return k.write(func() error { return c.Delete(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return k.write(func() error { return c.Patch(ctx, object, patch, options...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			return k.write(func() error { return c.Apply(ctx, object, options...) })
		},
	})
}

// TestAKilledControllerIsTakenUp kills the controller before and after each of its writes, and lets
// another go on: each time the claim ends whole, with the one volume that there is.
func TestAKilledControllerIsTakenUp(t *testing.T) {
	config := apiserver.Start(t, apiserver.Only(t, "../hyperconverged/components/crds", "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	direct, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	must(t, err)
	must(t, direct.Create(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"}}))
	must(t, direct.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.example.com"}))
	must(t, direct.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}, Provisioner: "nfs.example.com"}))
	must(t, direct.Create(t.Context(), &cdiv1.VolumeImportSource{
		ObjectMeta: metav1.ObjectMeta{Name: "empty", Namespace: "default"},
		Spec:       cdiv1.VolumeImportSourceSpec{Source: &cdiv1.ImportSourceType{Blank: &cdiv1.DataVolumeBlankImage{}}},
	}))
	for _, class := range []string{"fast", "nfs"} {
		unharmed := &life{T: t, direct: direct, name: "unharmed-" + class, class: class}
		writes := unharmed.live(&killer{WithWatch: direct})
		if writes < 4 {
			t.Fatalf("only %d writes", writes)
		}
		for at := 1; at <= writes; at++ {
			for _, after := range []bool{false, true} {
				name := fmt.Sprintf("%s-at-%d-%t", class, at, after)
				t.Run(name, func(t *testing.T) {
					one := &life{T: t, direct: direct, name: name, class: class}
					one.live(&killer{WithWatch: direct, at: at, after: after})
				})
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// life is that of one claim. It plays whatever else there is in a cluster.
type life struct {
	*testing.T
	direct client.WithWatch
	name   string
	class  string // fast, or nfs, which binds claims at once
	volume *corev1.PersistentVolume
}

func (l *life) get(object client.Object, name string) bool {
	l.Helper()
	err := l.direct.Get(l.Context(), client.ObjectKey{Namespace: "default", Name: name}, object)
	if err != nil && !apierrors.IsNotFound(err) {
		l.Fatal(err)
	}
	return err == nil
}

// live lets a claim be filled by a controller whose first one k kills, and returns how many writes that made.
func (l *life) live(k *killer) int {
	l.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: l.name, Namespace: "default"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(l.class),
			Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: cdiv1.VolumeImportSourceRef, Name: "empty"},
		},
	}
	must(l.T, l.direct.Create(l.Context(), claim))
	controller := func(c client.Client) *Reconciler {
		return &Reconciler{Client: c, live: l.direct, events: events.NewFakeRecorder(100), now: time.Now}
	}
	r := controller(k.client())
	for range 50 {
		_, err := r.Reconcile(l.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		if errors.Is(err, errKilled) {
			r = controller(l.direct)
		} else if err != nil {
			l.Fatal(err)
		}
		if l.play(claim) {
			l.check(claim)
			return k.count
		}
	}
	l.Fatal("the claim was never filled")
	return 0
}

// play does what the controller of DataVolumes, the storage and Kubernetes do, and reports whether all is done.
func (l *life) play(claim *corev1.PersistentVolumeClaim) bool {
	l.Helper()
	prime, dv := population.PrimeName(claim), &cdiv1.DataVolume{}
	if l.class == "nfs" {
		return l.playInPlace(claim, dv)
	}
	if !l.get(dv, prime) {
		return l.get(claim, l.name) && claim.Status.Phase == corev1.ClaimBound
	}
	other := &corev1.PersistentVolumeClaim{}
	switch {
	case l.volume == nil:
		other = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: prime, Namespace: "default", OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume")),
			}},
			Spec: *dv.Spec.PVC,
		}
		other.Spec.VolumeName = "pv-" + prime
		must(l.T, l.direct.Create(l.Context(), other))
		l.volume = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: other.Spec.VolumeName}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: other.Spec.AccessModes, StorageClassName: "fast", Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: other.Name, UID: other.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: prime}},
		}}
		must(l.T, l.direct.Create(l.Context(), l.volume))
		dv.Annotations = map[string]string{names.AnnotationDigest: "slipway1:00"}
		must(l.T, l.direct.Update(l.Context(), dv))
		dv.Status.Phase, dv.Status.Progress = cdiv1.Succeeded, "100.0%"
		must(l.T, l.direct.Status().Update(l.Context(), dv))
		return false
	case !l.get(l.volume, l.volume.Name):
		l.Fatal("the volume is gone")
	case l.volume.Spec.ClaimRef.UID == claim.UID && l.get(claim, l.name) && claim.Status.Phase != corev1.ClaimBound:
		claim.Spec.VolumeName = l.volume.Name
		must(l.T, l.direct.Update(l.Context(), claim))
		claim.Status.Phase = corev1.ClaimBound
		must(l.T, l.direct.Status().Update(l.Context(), claim))
	}
	return false
}

// playInPlace is play where the storage binds the claim at once, and the DataVolume fills it.
func (l *life) playInPlace(claim *corev1.PersistentVolumeClaim, dv *cdiv1.DataVolume) bool {
	l.Helper()
	if !l.get(claim, l.name) {
		l.Fatal("the claim is gone")
	}
	if l.volume == nil {
		l.volume = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + l.name}}
		claim.Spec.VolumeName = l.volume.Name
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "pv.kubernetes.io/bound-by-controller", "yes")
		must(l.T, l.direct.Update(l.Context(), claim))
		claim.Status.Phase = corev1.ClaimBound
		must(l.T, l.direct.Status().Update(l.Context(), claim))
	}
	if !l.get(dv, population.PrimeName(claim)) {
		return claim.Annotations[population.AnnotationProgress] == "100.0%"
	}
	if dv.Status.Phase == cdiv1.Succeeded || dv.DeletionTimestamp != nil {
		return false
	}
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "cdi.kubevirt.io/storage.pod.phase", "Succeeded")
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, names.AnnotationDigest, "slipway1:00")
	must(l.T, l.direct.Update(l.Context(), claim))
	dv.Status.Phase, dv.Status.Progress = cdiv1.Succeeded, "100.0%"
	must(l.T, l.direct.Status().Update(l.Context(), dv))
	return false
}

// check looks at what there is at the end.
func (l *life) check(claim *corev1.PersistentVolumeClaim) {
	l.Helper()
	notes := claim.Annotations
	if claim.Spec.VolumeName != l.volume.Name || notes["cdi.kubevirt.io/storage.pod.phase"] != "Succeeded" ||
		notes[names.AnnotationDigest] != "slipway1:00" || notes[population.AnnotationProgress] != "100.0%" {
		l.Errorf("the claim is %+v", claim)
	}
}
