//go:build integration

package virtualmachinerestore

import (
	"fmt"
	"strings"
	"testing"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/tests/fixture/breaking"
)

const (
	stateClaim  = "persistent-state-for-web-x"
	stateVolume = "persistent-state-for-web"
)

// statefulWorld is a world whose VM keeps the state of a TPM, which is in the snapshot.
func statefulWorld(t *testing.T, c client.WithWatch) *world {
	t.Helper()
	w := ownedWorld(t, c)
	state := w.stateOf(stateClaim, "web")
	state.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.web, virtv1.VirtualMachineGroupVersionKind)}
	w.must(w.Update(t.Context(), state))
	taken := &csiv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "of-state"}}
	taken.Spec.Source.PersistentVolumeClaimName = new(stateClaim)
	w.must(w.Create(t.Context(), taken))
	taken.Status = &csiv1.VolumeSnapshotStatus{ReadyToUse: new(true), RestoreSize: new(resource.MustParse("10Mi"))}
	w.must(w.Status().Update(t.Context(), taken))
	w.changeContent(func(spec *snapshotv1.VirtualMachineSnapshotContentSpec) {
		spec.VolumeBackups = append(spec.VolumeBackups, snapshotv1.VolumeBackup{
			VolumeName: stateVolume, VolumeSnapshotName: &taken.Name,
			PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: stateClaim, Namespace: w.namespace, Labels: state.Labels}, Spec: state.Spec,
			},
		})
	})
	return w
}

// stateOf makes a claim with the state of a VM, which is nobody's.
func (w *world) stateOf(name, vm string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{"persistent-state-for": vm}}}
	claim.Spec.StorageClassName = new("fast")
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}
	w.must(w.Create(w.t.Context(), claim))
	return claim
}

// state is the claim that the VM keeps its state on, nil for none.
func (w *world) state(vm *virtv1.VirtualMachine) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	claim, err := virtualmachinesnapshot.State(w.t.Context(), w, vm)
	w.must(err)
	return claim
}

// hasState makes sure that the restore is done, and that the VM finds the restored state and no other.
func (w *world) hasState(name string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	restore, vm := w.restore(), w.vm(name)
	if !completed(restore) || len(status(restore).Restores) != 3 {
		w.t.Fatalf("the restore is %+v", status(restore))
	}
	w.consistent(vm)
	made := w.made()["of-state"]
	if got := w.state(vm); made == nil || got == nil || got.UID != made.UID {
		w.t.Fatalf("the VM's state is %+v, and made was %+v", got, made)
	}
	if !metav1.IsControlledBy(made, vm) || made.Labels["persistent-state-for"] != name || made.Spec.Resources.Requests.Storage().String() != "10Mi" {
		w.t.Errorf("the claim is %+v, %+v", made.ObjectMeta, made.Spec)
	}
	for _, claim := range w.claims() {
		if claim.Labels["persistent-state-for"] == name && claim.UID != made.UID {
			w.t.Errorf("there is also %s", claim.Name)
		}
	}
	if len(vm.Spec.Template.Spec.Volumes) != 3 {
		w.t.Errorf("the volumes are %+v", vm.Spec.Template.Spec.Volumes)
	}
	return made
}

// Wherever the controller is killed, a VM that is not locked has a state, and the next one ends what was begun.
func ofState(t *testing.T, c client.WithWatch) {
	for kind, test := range map[string]struct {
		target string
		change func(*snapshotv1.VirtualMachineRestoreSpec)
	}{
		"to the same VM": {"web", func(*snapshotv1.VirtualMachineRestoreSpec) {}},
		"to a new VM":    {"copy", func(*snapshotv1.VirtualMachineRestoreSpec) {}},
		"in place":       {"web", replacing},
	} {
		for n := 1; ; n++ {
			b := &breaking.Writes{N: n, After: true}
			t.Run(kind+", "+b.String(), func(t *testing.T) {
				w := statefulWorld(t, c)
				old := w.claim(stateClaim).UID
				w.ask(test.target, test.change)
				for range 8 {
					if !b.Broken {
						_ = w.pass(b.Client(c))
						w.collect()
						w.bind()
					}
				}
				for _, name := range []string{"web", test.target} {
					if vm := w.vm(name); vm != nil && vm.Status.RestoreInProgress == nil && w.state(vm) == nil {
						t.Errorf("VM %s may start, and would make a new state", name)
					}
				}
				w.settleInPlace()
				made := w.hasState(test.target)
				if left := w.claim(stateClaim).UID; (left == old) != (test.target == "copy") || made.UID == old {
					t.Errorf("of the former state there is %q, which was %q; made was %q", left, old, made.UID)
				}
			})
			if !b.Broken {
				break
			}
		}
	}
}

// A restore that is deleted between any two of its writes leaves the VM unlocked, and with one state.
func ofStateDeleted(t *testing.T, c client.WithWatch) {
	for kind, change := range map[string]func(*snapshotv1.VirtualMachineRestoreSpec){
		"to other names": func(*snapshotv1.VirtualMachineRestoreSpec) {}, "in place": replacing,
	} {
		for n := 1; ; n++ {
			b := &breaking.Writes{N: n}
			t.Run(kind+", "+b.String(), func(t *testing.T) {
				w := statefulWorld(t, c)
				w.ask("web", change)
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
				var states []string
				for _, claim := range w.claims() {
					if claim.Labels["persistent-state-for"] == "web" {
						states = append(states, claim.Name)
					}
				}
				if state := w.state(vm); state == nil || !metav1.IsControlledBy(state, vm) || len(states) != 1 {
					t.Errorf("the states are %v, taken is %v", states, state)
				}
				if w.restore().UID != "" || vm.Status.RestoreInProgress != nil {
					t.Errorf("the restore is %+v, the VM's status %+v", w.restore().ObjectMeta, vm.Status)
				}
			})
			if !b.Broken {
				break
			}
		}
	}
}

// A claim of the state's name that the VM keeps no state on is not replaced; nor is a disk's place taken from a state.
func ofStateNotInPlace(t *testing.T, c client.WithWatch) {
	for name, test := range map[string]struct {
		prepare func(*world)
		change  func(*snapshotv1.VirtualMachineRestoreSpec)
		want    string
	}{
		"what is no state any more": {func(w *world) {
			claim := w.claim(stateClaim)
			delete(claim.Labels, "persistent-state-for")
			w.must(w.Update(w.t.Context(), claim))
		}, func(*snapshotv1.VirtualMachineRestoreSpec) {}, "and is not what volume " + stateVolume},
		"a state, for a disk": {func(*world) {}, func(spec *snapshotv1.VirtualMachineRestoreSpec) {
			spec.VolumeRestoreOverrides = []snapshotv1.VolumeRestoreOverride{{VolumeName: "data", RestoreName: stateClaim}, {VolumeName: stateVolume, RestoreName: "other"}}
		}, "and is not what volume data"},
	} {
		t.Run(name, func(t *testing.T) {
			w := statefulWorld(t, c)
			test.prepare(w)
			old := w.claim(stateClaim).UID
			w.ask("web", replacing, test.change)
			w.settleInPlace()
			if got := fmt.Sprint(status(w.restore()).Conditions); !strings.Contains(got, test.want) || w.claim(stateClaim).UID != old {
				t.Errorf("the conditions are %s, want %q", got, test.want)
			}
		})
	}
}

// What a user brought, and what is kept, is not deleted for a restored state.
func ofStateKept(t *testing.T, c client.WithWatch) {
	for name, change := range map[string]func(*world, *corev1.PersistentVolumeClaim){
		"nobody's": func(_ *world, claim *corev1.PersistentVolumeClaim) { claim.OwnerReferences = nil },
		"kept": func(w *world, claim *corev1.PersistentVolumeClaim) {
			claim.OwnerReferences = nil
			keep.For(claim, w.web.UID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := statefulWorld(t, c)
			claim := w.claim(stateClaim)
			change(w, claim)
			w.must(w.Update(t.Context(), claim))
			w.ask("web", func(spec *snapshotv1.VirtualMachineRestoreSpec) {
				spec.VolumeOwnershipPolicy = new(snapshotv1.VolumeOwnershipPolicyNone)
				spec.VolumeRestoreOverrides = []snapshotv1.VolumeRestoreOverride{{VolumeName: stateVolume, RestoreName: "tpm"}}
			})
			w.settleInPlace()
			former := w.claim(stateClaim)
			if former.UID != claim.UID || former.Labels["persistent-state-for"] != "" {
				t.Errorf("the former claim is %+v", former.ObjectMeta)
			}
			if state := w.state(w.vm("web")); !completed(w.restore()) || state == nil || state.Name != "tpm" || len(state.OwnerReferences) > 0 || state.Labels[keep.LabelFor] != "" {
				t.Errorf("the state is %+v", state)
			}
		})
	}
}

// A new VM is not made with half of what the old one had, or with another's state.
func ofStateRefused(t *testing.T, c client.WithWatch) {
	for name, test := range map[string]struct {
		change func(*world)
		want   string
	}{
		"the state was left out": {func(w *world) {
			snapshot := &snapshotv1.VirtualMachineSnapshot{}
			w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "s"}, snapshot))
			snapshot.Status.SnapshotVolumes = &snapshotv1.SnapshotVolumesLists{ExcludedVolumes: []string{stateVolume}}
			w.must(w.Status().Update(t.Context(), snapshot))
		}, "firmware is not in the snapshot"},
		"a user brought one": {func(w *world) { w.stateOf("brought", "copy") }, "PersistentVolumeClaim brought, which is nobody's, has the state of a VM named copy"},
	} {
		t.Run(name, func(t *testing.T) {
			w := statefulWorld(t, c)
			test.change(w)
			w.ask("copy")
			w.settle()
			if got := fmt.Sprint(status(w.restore()).Conditions); !strings.Contains(got, test.want) || w.vm("copy") != nil {
				t.Errorf("the conditions are %s, want %q", got, test.want)
			}
		})
	}
}

// A snapshot from before the VM had a state leaves the VM the one that it has.
func withoutState(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	state := w.stateOf(stateClaim, "web")
	w.ask("web")
	w.settle()
	w.isRestored("web")
	if got := w.state(w.vm("web")); got == nil || got.UID != state.UID {
		t.Errorf("the state is %+v", got)
	}
}
