//go:build integration

package virtualmachineclone

import (
	"fmt"
	"strings"
	"testing"
	"time"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachinerestore"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/breaking"
)

// TestAClone makes single passes against a real API server. The test takes the snapshots and restores them.
func TestAClone(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"clone.kubevirt.io", "snapshot.kubevirt.io", "kubevirt.io_virtualmachines", "cdi.kubevirt.io_datavolumes", "snapshot.storage.k8s.io")
	config := apiserver.Start(t, kinds...)
	config.QPS = -1 // it asks for much, one after the other
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.example.com"},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Provisioner: "example.com"},
		&csiv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Driver: "csi.example.com", DeletionPolicy: csiv1.VolumeSnapshotContentDelete},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]func(*testing.T, client.WithWatch){
		"of a VM":                              ofVM,
		"of a snapshot, which stays":           ofSnapshot,
		"that is broken off at any write":      broken,
		"waits for its source and its target":  waitsForBoth,
		"of disks that cannot be taken":        ofPlainDisks,
		"of a VM that keeps a state":           ofState,
		"of a snapshot with a state":           ofStateTaken,
		"whose snapshot fails, or is deleted":  snapshotLost,
		"whose restore fails":                  restoreFails,
		"that cannot be leaves nothing behind": impossible,
		"in its former version":                former,
		"outlives its VM for its claims":       ofRenamed,
		"whose names are taken":                namesTaken,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// world is a namespace with VM web, on a claim of a storage that takes snapshots.
type world struct {
	client.WithWatch
	t         *testing.T
	namespace string
	recorder  *events.FakeRecorder
	// late keeps new claims without volumes.
	late bool
}

func newWorld(t *testing.T, c client.WithWatch, options ...fixture.VMOption) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w := &world{WithWatch: c, t: t, recorder: events.NewFakeRecorder(1000)}
	w.must(c.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	w.claim("data", "fast")
	vm := fixture.VM(w.namespace, "web", append([]fixture.VMOption{fixture.Claim("data", "data"), fixture.CloudInit("#cloud-config")}, options...)...)
	w.must(c.Create(t.Context(), vm))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) claim(name, class string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	claim.Spec.StorageClassName = &class
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.must(w.Create(w.t.Context(), claim))
	return claim
}

// ask creates clone c, of VM web to VM copy.
func (w *world) ask(changes ...func(*clonev1.VirtualMachineCloneSpec)) *clonev1.VirtualMachineClone {
	w.t.Helper()
	clone := cloneTo("copy", changes...)
	clone.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: "c"}
	w.must(w.Create(w.t.Context(), clone))
	return clone
}

// pass makes one pass, with a client that may break.
func (w *world) pass(c client.Client) error {
	r := &Reconciler{Client: c, live: w.WithWatch, events: w.recorder, now: time.Now}
	_, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: "c"}})
	return err
}

// play is the controllers of snapshots and restores.
func (w *world) play() {
	w.t.Helper()
	snapshots, restores := &snapshotv1.VirtualMachineSnapshotList{}, &snapshotv1.VirtualMachineRestoreList{}
	w.must(w.List(w.t.Context(), snapshots, client.InNamespace(w.namespace)))
	for i := range snapshots.Items {
		if snapshots.Items[i].Status == nil {
			w.take(&snapshots.Items[i])
		}
	}
	w.must(w.List(w.t.Context(), restores, client.InNamespace(w.namespace)))
	for i := range restores.Items {
		if restores.Items[i].Status == nil {
			w.perform(&restores.Items[i])
		}
	}
}

// take takes a snapshot.
func (w *world) take(snapshot *snapshotv1.VirtualMachineSnapshot) {
	w.t.Helper()
	vm := w.vm(snapshot.Spec.Source.Name)
	content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "of-" + snapshot.Name}}
	content.Spec.VirtualMachineSnapshotName = &snapshot.Name
	content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: vm.Name, Labels: vm.Labels, Annotations: vm.Annotations}, Spec: vm.Spec,
	}
	content.Spec.VolumeBackups = []snapshotv1.VolumeBackup{{VolumeName: "data", VolumeSnapshotName: new("of-data")}}
	w.must(w.Create(w.t.Context(), content))
	content.Status = &snapshotv1.VirtualMachineSnapshotContentStatus{ReadyToUse: new(true), CreationTime: new(metav1.Now())}
	w.must(w.Status().Update(w.t.Context(), content))
	snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{
		ReadyToUse: new(true), Phase: snapshotv1.Succeeded, SourceUID: &vm.UID, VirtualMachineSnapshotContentName: &content.Name,
	}
	w.must(w.Status().Update(w.t.Context(), snapshot))
}

// perform does what a restore asks for.
func (w *world) perform(restore *snapshotv1.VirtualMachineRestore) {
	w.t.Helper()
	ctx := w.t.Context()
	content := &snapshotv1.VirtualMachineSnapshotContent{}
	w.must(w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "of-" + restore.Spec.VirtualMachineSnapshotName}, content))
	claim := w.claim("restored", "fast")
	claim.Annotations = map[string]string{virtualmachinerestore.AnnotationName: restore.Name}
	w.must(w.Update(ctx, claim))
	if !w.late {
		claim.Status.Phase = corev1.ClaimBound
		w.must(w.Status().Update(ctx, claim))
	}
	vm, err := virtualmachinerestore.Planned(restore, content, nil)
	w.must(err)
	w.must(w.Create(ctx, vm))
	restore.Status = &snapshotv1.VirtualMachineRestoreStatus{Complete: new(true)}
	w.must(w.Status().Update(ctx, restore))
}

// settle makes passes until nothing is left to do.
func (w *world) settle() {
	w.t.Helper()
	for range 6 {
		w.must(w.pass(w.WithWatch))
		w.play()
	}
}

// of reads an object by name, and says whether there is one.
func (w *world) of(name string, into client.Object) bool {
	w.t.Helper()
	err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false
	}
	w.must(err)
	return true
}

func (w *world) clone() *clonev1.VirtualMachineClone {
	w.t.Helper()
	clone := &clonev1.VirtualMachineClone{}
	w.of("c", clone)
	return clone
}

// vm is the VM of the name, nil when there is none.
func (w *world) vm(name string) *virtv1.VirtualMachine {
	w.t.Helper()
	vm := &virtv1.VirtualMachine{}
	if !w.of(name, vm) {
		return nil
	}
	return vm
}

// left are the snapshots and restores that there are.
func (w *world) left() []string {
	w.t.Helper()
	var all []string
	snapshots, restores := &snapshotv1.VirtualMachineSnapshotList{}, &snapshotv1.VirtualMachineRestoreList{}
	w.must(w.List(w.t.Context(), snapshots, client.InNamespace(w.namespace)))
	w.must(w.List(w.t.Context(), restores, client.InNamespace(w.namespace)))
	for i := range snapshots.Items {
		all = append(all, snapshots.Items[i].Name)
	}
	for i := range restores.Items {
		all = append(all, restores.Items[i].Name)
	}
	return all
}

// is makes sure of the clone's phase and of what its condition Ready says.
func (w *world) is(phase clonev1.VirtualMachineClonePhase, status corev1.ConditionStatus, why string) {
	w.t.Helper()
	got := w.clone().Status
	for _, c := range got.Conditions {
		if c.Type == clonev1.ConditionReady && c.Status == status && strings.Contains(c.Reason, why) && got.Phase == phase {
			return
		}
	}
	w.t.Fatalf("the clone is %+v, want %q, %s, %s", got, phase, status, why)
}

// told are the events since it was asked last.
func (w *world) told() string {
	var all []string
	for {
		select {
		case event := <-w.recorder.Events:
			all = append(all, event)
		default:
			return strings.Join(all, "\n")
		}
	}
}

// succeeded makes sure that there is a second VM, and nothing else.
func (w *world) succeeded() {
	w.t.Helper()
	w.is(clonev1.Succeeded, corev1.ConditionTrue, ready)
	status, vm := w.clone().Status, w.vm("copy")
	if vm == nil || *status.TargetName != "copy" || !status.CreationTime.Equal(&vm.CreationTimestamp) || status.SnapshotName != nil || status.RestoreName != nil {
		w.t.Errorf("the clone is %+v of %v", status, vm)
	}
	if left := w.left(); len(left) > 0 {
		w.t.Errorf("left are %v", left)
	}
}

func ofVM(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.late = true
	clone := w.ask(func(s *clonev1.VirtualMachineCloneSpec) { s.NewSMBiosSerial = new("s-1") })
	w.must(w.pass(c))
	w.is(clonev1.SnapshotInProgress, corev1.ConditionFalse, processing)
	snapshot := &snapshotv1.VirtualMachineSnapshot{}
	if !w.of("tmp-snapshot-"+string(clone.UID), snapshot) || !metav1.IsControlledBy(snapshot, clone) || *w.clone().Status.SnapshotName != snapshot.Name {
		t.Errorf("the snapshot is %+v", snapshot)
	}
	w.play()
	w.must(w.pass(c))
	w.is(clonev1.RestoreInProgress, corev1.ConditionFalse, processing)
	if status := w.clone().Status; *status.RestoreName != "tmp-restore-"+string(clone.UID) || *status.TargetName != "copy" {
		t.Errorf("the clone is %+v", status)
	}
	w.settle()
	w.is(clonev1.Succeeded, corev1.ConditionTrue, ready)
	if left := w.left(); len(left) != 2 {
		t.Errorf("before the claims are bound %v are left", left)
	}
	if vm := w.vm("copy"); vm.Spec.Template.Spec.Domain.Firmware.Serial != "s-1" {
		t.Errorf("the VM is %+v", vm.Spec)
	}
	claim := &corev1.PersistentVolumeClaim{}
	w.of("restored", claim)
	claim.Status.Phase = corev1.ClaimBound
	w.must(c.Status().Update(t.Context(), claim))
	w.settle()
	w.succeeded()
	told := w.told()
	for _, want := range []string{
		"Normal SnapshotCreated created snapshot tmp-snapshot-", "Normal SnapshotReady snapshot tmp-", "Normal RestoreCreated created restore tmp-restore-",
		"Normal RestoreReady restore tmp-", "Normal TargetVMCreated created target VM copy for clone c", "Normal PVCBound all PVC for clone c are bound",
	} {
		if strings.Count(told, want) != 1 {
			t.Errorf("the events are\n%s\nwant %s", told, want)
		}
	}
	w.must(c.Delete(t.Context(), w.vm("copy")))
	w.settle()
	if w.of("c", &clonev1.VirtualMachineClone{}) {
		t.Error("the clone outlives its VM")
	}
}

func ofSnapshot(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.ask(func(s *clonev1.VirtualMachineCloneSpec) {
		s.Source = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.kubevirt.io"), Kind: kindSnapshot, Name: "golden"}
	})
	w.must(w.pass(c))
	w.is("", corev1.ConditionFalse, "Source doesnt exist: VirtualMachineSnapshot "+w.namespace+"/golden")
	snapshot := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "golden"}}
	snapshot.Spec.Source = machineRef("web")
	w.must(c.Create(t.Context(), snapshot))
	w.settle()
	w.is(clonev1.Succeeded, corev1.ConditionTrue, ready)
	if left := fmt.Sprint(w.left()); left != "[golden]" {
		t.Errorf("left are %s", left)
	}
}

// Wherever the controller is killed, the next one ends what was begun.
func broken(t *testing.T, c client.WithWatch) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			b := &breaking.Writes{N: n, After: after}
			t.Run(b.String(), func(t *testing.T) {
				w := newWorld(t, c)
				w.ask()
				for range 6 {
					if !b.Broken {
						_ = w.pass(b.Client(c))
						w.play()
					}
				}
				w.settle()
				w.succeeded()
				machines := &virtv1.VirtualMachineList{}
				w.must(c.List(t.Context(), machines, client.InNamespace(w.namespace)))
				if len(machines.Items) != 2 {
					t.Errorf("there are %d VMs", len(machines.Items))
				}
			})
			if !b.Broken {
				break
			}
		}
	}
}

func waitsForBoth(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.must(c.Delete(t.Context(), w.vm("web")))
	other := fixture.VM(w.namespace, "copy")
	w.must(c.Create(t.Context(), other))
	w.ask()
	w.must(w.pass(c))
	w.is("", corev1.ConditionFalse, "VirtualMachine copy exists")
	w.must(c.Delete(t.Context(), other))
	w.must(w.pass(c))
	w.must(w.pass(c))
	w.is("", corev1.ConditionFalse, "Source doesnt exist: VirtualMachine "+w.namespace+"/web")
	if told := w.told(); strings.Count(told, "Warning RestoreCreationFailed") != 1 || strings.Count(told, "Warning SourceDoesNotExist") != 1 {
		t.Errorf("the events are\n%s", told)
	}
	w.must(c.Create(t.Context(), fixture.VM(w.namespace, "web", fixture.Claim("data", "data"))))
	w.settle()
	w.succeeded()
}

func ofPlainDisks(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, fixture.Claim("plain", "plain"), fixture.Claim("missing", "missing"))
	w.claim("plain", "plain")
	w.ask()
	w.must(w.pass(c))
	w.is("", corev1.ConditionFalse, "Virtual Machine volume plain does not support snapshots\nVirtual Machine volume missing snapshot support unknown")
	if left := w.left(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func ofState(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, func(vm *virtv1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Devices.TPM = &virtv1.TPMDevice{Persistent: new(true)}
	})
	w.ask()
	w.settle()
	w.is(clonev1.Failed, corev1.ConditionFalse, "Clone of source with backendstorage is not supported: VM "+w.namespace+"/web")

	w = newWorld(t, c)
	state := w.claim("state", "fast") // of a TPM that a preference asks for
	state.Labels = map[string]string{"persistent-state-for": "web"}
	w.must(c.Update(t.Context(), state))
	w.ask()
	w.settle()
	w.is(clonev1.Failed, corev1.ConditionFalse, "Clone of source with backendstorage is not supported: VM "+w.namespace+"/web")
	if w.vm("copy") != nil {
		t.Error("there is a VM without the state")
	}
}

// A snapshot that has a state, or left one out, is not cloned, whatever its VM's definition says.
func ofStateTaken(t *testing.T, c client.WithWatch) {
	backup := snapshotv1.VolumeBackup{VolumeName: "persistent-state-for-web", VolumeSnapshotName: new("of-state")}
	backup.PersistentVolumeClaim.Labels = map[string]string{"persistent-state-for": "web"}
	for name, change := range map[string]func(*snapshotv1.VirtualMachineSnapshot, *snapshotv1.VirtualMachineSnapshotContent){
		"has": func(_ *snapshotv1.VirtualMachineSnapshot, content *snapshotv1.VirtualMachineSnapshotContent) {
			content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, backup)
		},
		"left out": func(snapshot *snapshotv1.VirtualMachineSnapshot, _ *snapshotv1.VirtualMachineSnapshotContent) {
			snapshot.Status.SnapshotVolumes = &snapshotv1.SnapshotVolumesLists{ExcludedVolumes: []string{backup.VolumeName}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c)
			snapshot := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "s"}}
			snapshot.Spec.Source = machineRef("web")
			w.must(c.Create(t.Context(), snapshot))
			w.take(snapshot)
			content := &snapshotv1.VirtualMachineSnapshotContent{}
			w.of(*snapshot.Status.VirtualMachineSnapshotContentName, content)
			change(snapshot, content)
			w.must(c.Update(t.Context(), content))
			w.must(c.Status().Update(t.Context(), snapshot))
			w.ask(func(s *clonev1.VirtualMachineCloneSpec) {
				s.Source = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.kubevirt.io"), Kind: kindSnapshot, Name: "s"}
			})
			w.settle()
			w.is(clonev1.Failed, corev1.ConditionFalse, "Clone of source with backendstorage is not supported: snapshot "+w.namespace+"/s")
		})
	}
}

func snapshotLost(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	clone := w.ask()
	w.must(w.pass(c))
	snapshot := &snapshotv1.VirtualMachineSnapshot{}
	w.of(snapshotName(clone), snapshot)
	w.must(c.Delete(t.Context(), snapshot))
	w.settle()
	w.is(clonev1.Failed, corev1.ConditionFalse, "does not exist anymore")

	w = newWorld(t, c)
	clone = w.ask()
	w.must(w.pass(c))
	w.of(snapshotName(clone), snapshot)
	snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{Phase: snapshotv1.Failed, Conditions: []snapshotv1.Condition{{
		Type: snapshotv1.ConditionFailure, Status: corev1.ConditionTrue, Reason: "snapshot deadline exceeded", Message: "the agent refused",
	}}}
	w.must(c.Status().Update(t.Context(), snapshot))
	w.settle()
	w.is(clonev1.Failed, corev1.ConditionFalse, "snapshot deadline exceeded: the agent refused")
	if left := w.left(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func restoreFails(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	clone := w.ask()
	w.must(w.pass(c))
	w.play()
	w.must(w.pass(c))
	restore := &snapshotv1.VirtualMachineRestore{}
	w.of(restoreName(clone.UID), restore)
	say := func(kind snapshotv1.ConditionType, why string) {
		restore.Status = &snapshotv1.VirtualMachineRestoreStatus{Conditions: []snapshotv1.Condition{{Type: kind, Status: corev1.ConditionTrue, Reason: why}}}
		w.must(c.Status().Update(t.Context(), restore))
		w.must(w.pass(c))
	}
	say(snapshotv1.ConditionProgressing, "Creating new PVCs")
	w.is(clonev1.RestoreInProgress, corev1.ConditionFalse, processing)
	if got := fmt.Sprint(w.clone().Status.Conditions); !strings.Contains(got, ": Creating new PVCs") {
		t.Errorf("the conditions are %s", got)
	}
	say(snapshotv1.ConditionFailure, "Restore target not ready")
	w.settle()
	w.is(clonev1.Failed, corev1.ConditionFalse, "Restore target not ready")
	if left := w.left(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func impossible(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.ask(func(s *clonev1.VirtualMachineCloneSpec) {
		s.NewMacAddresses = map[string]string{"none": "02:00:00:00:00:01"}
	})
	w.settle()
	w.is(clonev1.Failed, corev1.ConditionFalse, "spec.newMacAddresses names interface none")
	if left := w.left(); len(left) > 0 || w.vm("copy") != nil {
		t.Errorf("left are %v", left)
	}
}

func former(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	clone := cloneTo("copy")
	clone.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: "c"}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(clone)
	w.must(err)
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(clonev1.VirtualMachineCloneKind.GroupKind().WithVersion("v1alpha1"))
	w.must(c.Create(t.Context(), object))
	w.settle()
	w.succeeded()
}
