//go:build integration

package virtualmachinerestore

import (
	"fmt"
	"strings"
	"testing"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/tests/fixture/breaking"
)

func replacing(spec *snapshotv1.VirtualMachineRestoreSpec) {
	spec.VolumeRestorePolicy = new(snapshotv1.VolumeRestorePolicyInPlace)
}

// ownedWorld is a world whose claim root is its DataVolume's, as it is in a cluster.
func ownedWorld(t *testing.T, c client.WithWatch) *world {
	t.Helper()
	w := newWorld(t, c)
	root := w.claim("root")
	root.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.dataVolume("root"), cdiv1.SchemeGroupVersion.WithKind(kindDataVolume))}
	w.must(c.Update(t.Context(), root))
	return w
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	w.must(client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, claim)))
	return claim
}

// collect plays the garbage collector, and what protects claims.
func (w *world) collect() {
	w.t.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	for i := range list.Items {
		claim := &list.Items[i]
		by := metav1.GetControllerOf(claim)
		orphaned := by != nil && by.Kind == kindDataVolume && w.dataVolume(by.Name).UID != by.UID
		if !orphaned && claim.DeletionTimestamp == nil {
			continue
		}
		w.must(client.IgnoreNotFound(w.Delete(w.t.Context(), claim)))
		w.must(client.IgnoreNotFound(w.Patch(w.t.Context(), claim, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
	}
}

// settleInPlace is settle in a world with a garbage collector.
func (w *world) settleInPlace() {
	w.t.Helper()
	for range 8 {
		w.must(w.pass(w.WithWatch))
		w.collect()
		w.bind()
	}
}

// Wherever the controller is killed, the next one ends what was begun, and no claim is made or replaced twice.
func intoPlace(t *testing.T, c client.WithWatch) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			b := &breaking.Writes{N: n, After: after}
			t.Run(b.String(), func(t *testing.T) {
				w := ownedWorld(t, c)
				root, data := w.claim("root").UID, w.claim("data").UID
				w.ask("web", replacing)
				for range 8 {
					if !b.Broken {
						_ = w.pass(b.Client(c))
						w.collect()
						w.bind()
					}
				}
				w.settleInPlace()
				vm := w.isRestored("web")
				if claims := w.claims(); len(claims) != 2 || w.claim("root").UID == root || w.claim("data").UID == data {
					t.Errorf("the claims are %v", claims)
				}
				if got := vm.Spec.Template.Spec.Volumes; got[0].DataVolume.Name != "root" || got[1].PersistentVolumeClaim.ClaimName != "data" {
					t.Errorf("the volumes are %+v", got)
				}
				if got := status(w.restore()).DeletedDataVolumes; len(got) > 0 {
					t.Errorf("deleted are %v", got)
				}
			})
			if !b.Broken {
				break
			}
		}
	}
}

func notInPlace(t *testing.T, c client.WithWatch) {
	for name, test := range map[string]struct {
		prepare func(w *world)
		want    string
	}{
		"a pod uses it": {func(w *world) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "other"}}
			pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "registry.local/c:test"}}
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			w.must(w.Create(w.t.Context(), pod))
		}, "PersistentVolumeClaim data is in use by Pod other"},
		"the VM is on another": {func(w *world) {
			vm := w.vm("web")
			vm.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "newer"
			w.must(w.Update(w.t.Context(), vm))
			w.web = vm
		}, "PersistentVolumeClaim data exists, and is not what volume data of VirtualMachine web is on"},
		"a DataVolume fills it": {func(w *world) {
			dv := w.dataVolume("root").DeepCopy()
			dv.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: "data"}
			w.must(w.Create(w.t.Context(), dv))
			data := w.claim("data")
			data.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind(kindDataVolume))}
			w.must(w.Update(w.t.Context(), data))
		}, "PersistentVolumeClaim data is DataVolume data's, which is not VirtualMachine web's"},
		"a disk is being copied to it": {func(w *world) {
			vm := w.vm("web")
			vm.Annotations = map[string]string{volumemigration.AnnotationNote: `{"data":{"claim":"older","generation":1}}`}
			w.must(w.Update(w.t.Context(), vm))
		}, "volumes of VirtualMachine web are being copied"},
		"a snapshot of a volume is not ready": {func(w *world) {
			taken := &csiv1.VolumeSnapshot{}
			w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "of-data"}, taken))
			taken.Status.ReadyToUse = new(false)
			w.must(w.Status().Update(w.t.Context(), taken))
		}, "of volume data is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			w := ownedWorld(t, c)
			test.prepare(w)
			root, data := w.claim("root").UID, w.claim("data").UID
			w.ask("web", replacing)
			w.settleInPlace()
			if got := fmt.Sprint(status(w.restore()).Conditions); !strings.Contains(got, test.want) {
				t.Errorf("the conditions are %s, want %q", got, test.want)
			}
			if w.claim("root").UID != root || w.claim("data").UID != data || w.dataVolume("root").UID == "" {
				t.Error("something of the VM is gone")
			}
		})
	}
}

// A restore that is deleted between any two of its writes leaves the VM with a disk for each of its volumes, and unlocked.
func deletedInPlace(t *testing.T, c client.WithWatch) {
	for n := 1; ; n++ {
		b := &breaking.Writes{N: n}
		t.Run(b.String(), func(t *testing.T) {
			w := ownedWorld(t, c)
			w.ask("web", replacing)
			for range 8 {
				if !b.Broken {
					_ = w.pass(b.Client(c))
					w.collect()
					w.bind()
				}
			}
			w.must(client.IgnoreNotFound(w.Delete(t.Context(), w.restore())))
			w.settleInPlace()
			vm := w.vm("web")
			w.consistent(vm)
			if w.restore().UID != "" || vm.Status.RestoreInProgress != nil || len(w.claims()) != 2 {
				t.Errorf("the restore is %+v, the VM's status %+v, the claims %v", w.restore().ObjectMeta, vm.Status, w.claims())
			}
		})
		if !b.Broken {
			break
		}
	}
}
