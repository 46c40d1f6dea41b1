//go:build integration

package virtualmachinerestore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachine"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/breaking"
)

// TestARestore makes single passes against a real API server. The test is the storage driver and virt-api.
func TestARestore(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"snapshot.kubevirt.io", "clone.kubevirt.io", "kubevirt.io_virtualmachines", "kubevirt.io_virtualmachineinstances", "cdi.kubevirt.io_datavolumes", "snapshot.storage.k8s.io")
	config := apiserver.Start(t, kinds...)
	config.QPS = -1 // it asks for much, one after the other
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.example.com"}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, client.WithWatch){
		"to the same VM":                             toTheSame,
		"that is broken off at any write":            func(t *testing.T, c client.WithWatch) { broken(t, c, "web") },
		"to a new VM, broken off at any write":       func(t *testing.T, c client.WithWatch) { broken(t, c, "copy") },
		"to a new VM with patches":                   toANew,
		"to a VM of the old name is the same guest":  toTheOldName,
		"of a running VM, as its policy says":        ofRunning,
		"that is deleted leaves the VM as it was":    deletedEarly,
		"that is deleted late is carried to its end": deletedLate,
		"from what is not ready, or not the VM's":    refused,
		"names its claims as asked":                  named,
		"leaves its claims nobody's as asked":        ofNobody,
		"puts its claims in the places of the old":   intoPlace,
		"replaces nothing that is not the VM's":      notInPlace,
		"leaves all disks when it is deleted early":  deletedInPlace,
		"to a VM that keeps its volumes":             toAKeeper,
		"keeps what claims without volumes need":     ofAClone,
		"of a VM of an instance type":                ofAType,
		"of a state, broken off at any write":        ofState,
		"of a state that is deleted at any write":    ofStateDeleted,
		"of a state replaces no other claim":         ofStateNotInPlace,
		"of a state leaves what is not the VM's":     ofStateKept,
		"of a state to a new VM may be refused":      ofStateRefused,
		"without a state leaves that of the VM":      withoutState,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// world is a namespace with VM web, which is halted, and a snapshot of it: from when it had less memory.
type world struct {
	client.WithWatch
	t         *testing.T
	namespace string
	web       *virtv1.VirtualMachine
	recorder  *events.FakeRecorder
	now       time.Time
	stopped   int
}

func newWorld(t *testing.T, c client.WithWatch) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w := &world{WithWatch: c, t: t, recorder: events.NewFakeRecorder(1000), now: time.Now()}
	w.must(c.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	w.web = fixture.VM(w.namespace, "web", fixture.Strategy(virtv1.RunStrategyHalted),
		fixture.Template("root", fixture.DataVolume(w.namespace, "root", "1Gi")), fixture.Claim("data", "data"), fixture.CloudInit("#cloud-config"))
	w.web.Labels = map[string]string{"team": "a"}
	w.must(c.Create(t.Context(), w.web))
	dv := fixture.DataVolume(w.namespace, "root", "1Gi")
	dv.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.web, virtv1.VirtualMachineGroupVersionKind)}
	w.must(c.Create(t.Context(), dv))
	w.snapshot()
	w.web.Spec.Template.Spec.Domain.Memory.Guest = new(resource.MustParse("256Mi"))
	w.must(c.Update(t.Context(), w.web))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// snapshot is what a snapshot of the VM leaves, with its claims.
func (w *world) snapshot() {
	w.t.Helper()
	ctx := w.t.Context()
	snapshot := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "s"}}
	snapshot.Spec.Source = *target("web")
	w.must(w.Create(ctx, snapshot))
	content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "content"}}
	content.Spec.VirtualMachineSnapshotName = &snapshot.Name
	content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: w.namespace, Labels: w.web.Labels}, Spec: *w.web.Spec.DeepCopy(),
	}
	for _, volume := range []string{"root", "data"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: volume, Labels: map[string]string{"kept": "yes", keep.LabelFor: "another"},
			Annotations: map[string]string{"note": "kept", "slipway-vm.github.io/content-digest": "x", "pv.kubernetes.io/bind-completed": "yes"},
		}}
		claim.Spec.StorageClassName = new("fast")
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		w.must(w.Create(ctx, claim))
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, snapshotv1.VolumeBackup{
			VolumeName: volume, VolumeSnapshotName: new("of-" + volume),
			PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Name: claim.Name, Namespace: claim.Namespace, Labels: claim.Labels, Annotations: claim.Annotations,
			}, Spec: claim.Spec},
		})
		taken := &csiv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "of-" + volume}}
		taken.Spec.Source.PersistentVolumeClaimName = &claim.Name
		w.must(w.Create(ctx, taken))
		taken.Status = &csiv1.VolumeSnapshotStatus{ReadyToUse: new(true), RestoreSize: new(resource.MustParse("2Gi"))}
		w.must(w.Status().Update(ctx, taken))
	}
	w.must(w.Create(ctx, content))
	content.Status = &snapshotv1.VirtualMachineSnapshotContentStatus{ReadyToUse: new(true), CreationTime: new(metav1.Now())}
	w.must(w.Status().Update(ctx, content))
	snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{
		ReadyToUse: new(true), Phase: snapshotv1.Succeeded, SourceUID: &w.web.UID, VirtualMachineSnapshotContentName: &content.Name,
	}
	w.must(w.Status().Update(ctx, snapshot))
}

func target(name string) *corev1.TypedLocalObjectReference {
	return &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: name}
}

// ask creates restore r.
func (w *world) ask(name string, changes ...func(*snapshotv1.VirtualMachineRestoreSpec)) {
	w.t.Helper()
	restore := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "r"}}
	restore.Spec.Target, restore.Spec.VirtualMachineSnapshotName = *target(name), "s"
	for _, change := range changes {
		change(&restore.Spec)
	}
	w.must(w.Create(w.t.Context(), restore))
}

// Stop plays virt-api and the node.
func (w *world) Stop(context.Context, client.ObjectKey) error {
	w.stopped++
	return w.Delete(w.t.Context(), w.vmi())
}

func (w *world) vmi() *virtv1.VirtualMachineInstance {
	return &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}}
}

// pass makes one pass, with a client that may break.
func (w *world) pass(c client.Client) error {
	r := &Reconciler{Client: c, live: w.WithWatch, machines: w, events: w.recorder, now: func() time.Time { return w.now }}
	_, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: "r"}})
	return err
}

// bind plays the storage.
func (w *world) bind() {
	w.t.Helper()
	for _, claim := range w.claims() {
		if claim.Status.Phase != corev1.ClaimBound {
			claim.Status.Phase = corev1.ClaimBound
			w.must(w.Status().Update(w.t.Context(), claim))
		}
	}
}

// settle makes passes until nothing is left to do.
func (w *world) settle() {
	w.t.Helper()
	for range 6 {
		w.must(w.pass(w.WithWatch))
		w.bind()
	}
}

func (w *world) claims() []*corev1.PersistentVolumeClaim {
	w.t.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	var all []*corev1.PersistentVolumeClaim
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			all = append(all, &list.Items[i])
		}
	}
	return all
}

// made are the claims of the restore, by volume.
func (w *world) made() map[string]*corev1.PersistentVolumeClaim {
	all := map[string]*corev1.PersistentVolumeClaim{}
	for _, claim := range w.claims() {
		if claim.Annotations[AnnotationName] == "r" {
			all[claim.Spec.DataSource.Name] = claim
		}
	}
	return all
}

func (w *world) restore() *snapshotv1.VirtualMachineRestore {
	w.t.Helper()
	restore := &snapshotv1.VirtualMachineRestore{}
	w.must(client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "r"}, restore)))
	return restore
}

// vm is the VM of the name, nil when there is none.
func (w *world) vm(name string) *virtv1.VirtualMachine {
	w.t.Helper()
	vm := &virtv1.VirtualMachine{}
	err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, vm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return vm
}

func (w *world) dataVolume(name string) *cdiv1.DataVolume {
	w.t.Helper()
	dv := &cdiv1.DataVolume{}
	w.must(client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, dv)))
	return dv
}

// consistent makes sure that the VM's disks exist, whatever was done.
func (w *world) consistent(vm *virtv1.VirtualMachine) {
	w.t.Helper()
	if vm == nil {
		return
	}
	there := map[string]bool{}
	for _, claim := range w.claims() {
		there[claim.Name] = true
	}
	volumes := vm.Spec.Template.Spec.Volumes
	if !there[volumes[0].DataVolume.Name] || !there[volumes[1].PersistentVolumeClaim.ClaimName] {
		w.t.Errorf("VM %s names %s and %s, and there is %v", vm.Name, volumes[0].DataVolume.Name, volumes[1].PersistentVolumeClaim.ClaimName, there)
	}
	if volumes[0].DataVolume.Name == "root" && w.dataVolume("root").UID == "" {
		w.t.Errorf("VM %s names a DataVolume that was deleted", vm.Name)
	}
}

// isRestored makes sure that the VM is what it was.
func (w *world) isRestored(name string) *virtv1.VirtualMachine {
	w.t.Helper()
	restore, vm := w.restore(), w.vm(name)
	if got := status(restore); !completed(restore) || got.RestoreTime == nil || len(got.Restores) != 2 {
		w.t.Fatalf("the restore is %+v", got)
	}
	w.consistent(vm)
	spec := &vm.Spec.Template.Spec
	if spec.Domain.Memory.Guest.String() != "128Mi" || vm.Status.RestoreInProgress != nil || *vm.Spec.RunStrategy != virtv1.RunStrategyHalted || len(spec.Volumes) != 3 {
		w.t.Errorf("the VM is %+v, %+v", vm.Spec, vm.Status)
	}
	root, data := w.made()["of-root"], w.made()["of-data"]
	if root == nil || data == nil || spec.Volumes[0].DataVolume.Name != root.Name || spec.Volumes[1].PersistentVolumeClaim.ClaimName != data.Name {
		w.t.Fatalf("the volumes are %+v, the claims %v and %v", spec.Volumes, root, data)
	}
	if dv := w.dataVolume(root.Name); !metav1.IsControlledBy(dv, vm) || dv.Spec.Source != nil || dv.Spec.Storage.DataSource.Name != "of-root" || vm.Spec.DataVolumeTemplates[0].Name != root.Name {
		w.t.Errorf("the DataVolume is %+v", dv)
	}
	if len(root.OwnerReferences) > 0 || root.Annotations["cdi.kubevirt.io/allowClaimAdoption"] != "true" || !metav1.IsControlledBy(data, vm) {
		w.t.Errorf("the claims belong to %+v and %+v", root.OwnerReferences, data.OwnerReferences)
	}
	if data.Spec.Resources.Requests.Storage().String() != "2Gi" || data.Labels["kept"] != "yes" || data.Labels[keep.LabelFor] != "" || data.Annotations["note"] != "kept" ||
		data.Annotations["slipway-vm.github.io/content-digest"] != "" || data.Annotations["pv.kubernetes.io/bind-completed"] != "" {
		w.t.Errorf("the claim is %+v", data)
	}
	return vm
}

func toTheSame(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.ask("web")
	w.must(w.pass(c))
	if vm := w.vm("web"); *vm.Status.RestoreInProgress != "r" || vm.Spec.Template.Spec.Domain.Memory.Guest.String() != "256Mi" {
		t.Errorf("before its claims are bound the VM is %+v", vm)
	}
	w.settle()
	vm := w.isRestored("web")
	if got := status(w.restore()).DeletedDataVolumes; !slices.Equal(got, []string{"root"}) || w.dataVolume("root").UID != "" {
		t.Errorf("deleted are %v", got)
	}
	if vm.UID != w.web.UID || !metav1.IsControlledBy(w.restore(), vm) {
		t.Error("it is another VM, or not the restore's")
	}
	w.must(c.Delete(t.Context(), w.restore()))
	w.must(w.pass(c))
	if w.restore().UID != "" || len(w.made()) != 2 {
		t.Error("the restore stays, or its claims went with it")
	}
}

// Wherever the controller is killed, the VM has its disks, and the next one ends what was begun.
func broken(t *testing.T, c client.WithWatch, name string) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			b := &breaking.Writes{N: n, After: after}
			t.Run(b.String(), func(t *testing.T) {
				w := newWorld(t, c)
				w.ask(name)
				for range 4 {
					if !b.Broken {
						_ = w.pass(b.Client(c))
						w.bind()
					}
				}
				w.consistent(w.vm("web"))
				w.consistent(w.vm(name))
				w.settle()
				w.isRestored(name)
				if len(w.claims()) != 4 {
					t.Errorf("there are %d claims", len(w.claims()))
				}
			})
			if !b.Broken {
				break
			}
		}
	}
}

func toANew(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.ask("copy", func(spec *snapshotv1.VirtualMachineRestoreSpec) {
		spec.Patches = []string{
			`{"op":"replace","path":"/spec/template/spec/domain/devices/interfaces/0/macAddress","value":"02:00:00:00:00:01"}`,
			`{"op":"add","path":"/metadata/labels/copied","value":"yes"}`,
		}
		spec.Patches[0] = strings.Replace(spec.Patches[0], "replace", "add", 1)
	})
	w.settle()
	vm := w.isRestored("copy")
	if vm.Labels["copied"] != "yes" || vm.Labels["team"] != "a" || vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress != "02:00:00:00:00:01" || vm.Spec.Template.Spec.Domain.Firmware != nil {
		t.Errorf("the new VM is %+v", vm)
	}
	if old := w.vm("web"); old.ResourceVersion != w.web.ResourceVersion || w.dataVolume("root").UID == "" {
		t.Error("the old VM was touched")
	}
}

func toTheOldName(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.must(c.Delete(t.Context(), w.web))
	w.ask("web")
	w.settle()
	vm := w.isRestored("web")
	if got, want := vm.Spec.Template.Spec.Domain.Firmware, virtualmachine.FirmwareUUID(w.web.UID); got == nil || got.UUID != want || vm.UID == w.web.UID {
		t.Errorf("the firmware is %+v, want %s", got, want)
	}
}

func ofRunning(t *testing.T, c client.WithWatch) {
	for policy, check := range map[snapshotv1.TargetReadinessPolicy]func(*testing.T, *world){
		snapshotv1.VirtualMachineRestoreStopTarget: func(t *testing.T, w *world) {
			if w.settle(); w.stopped != 1 {
				t.Errorf("the VM was stopped %d times", w.stopped)
			}
			w.isRestored("web")
		},
		snapshotv1.VirtualMachineRestoreFailImmediate: func(t *testing.T, w *world) { w.settle(); w.failed(targetNotReady) },
		snapshotv1.VirtualMachineRestoreWaitGracePeriodAndFail: func(t *testing.T, w *world) {
			w.settle()
			if !waits(w.restore()) || ended(w.restore()) {
				t.Errorf("the restore is %+v", status(w.restore()))
			}
			w.now = w.now.Add(6 * time.Minute)
			w.settle()
			w.failed(graceExceeded)
		},
		snapshotv1.VirtualMachineRestoreWaitEventually: func(t *testing.T, w *world) {
			w.now = w.now.Add(time.Hour)
			w.settle()
			w.must(w.Delete(t.Context(), w.vmi()))
			w.settle()
			w.isRestored("web")
		},
	} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t, c)
			w.must(c.Create(t.Context(), w.vmi()))
			w.ask("web", func(spec *snapshotv1.VirtualMachineRestoreSpec) { spec.TargetReadinessPolicy = &policy })
			check(t, w)
		})
	}
}

// failed makes sure that nothing was done to the VM, and that the restore says why.
func (w *world) failed(why string) {
	w.t.Helper()
	if vm := w.vm("web"); vm.Status.RestoreInProgress != nil || len(w.made()) > 0 || vm.Generation != w.web.Generation {
		w.t.Errorf("the VM is %+v", vm)
	}
	if got := fmt.Sprint(status(w.restore()).Conditions); !strings.Contains(got, why) {
		w.t.Errorf("the conditions are %s, want %q", got, why)
	}
}

func deletedEarly(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.ask("web")
	w.must(w.pass(c))
	if len(w.made()) != 2 {
		t.Fatalf("there are %d claims", len(w.made()))
	}
	for _, claim := range w.made() { // which nobody protects here
		claim.Finalizers = nil
		w.must(c.Update(t.Context(), claim))
	}
	w.must(c.Delete(t.Context(), w.restore()))
	w.must(w.pass(c))
	w.failed("")
	w.consistent(w.vm("web"))
	if w.restore().UID != "" {
		t.Error("the restore is still there")
	}
}

func deletedLate(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.ask("web")
	w.must(w.pass(c))
	w.bind()
	for n := 1; w.vm("web").Annotations[AnnotationLast] == ""; n++ {
		_ = w.pass((&breaking.Writes{N: n}).Client(c))
	}
	w.must(c.Delete(t.Context(), w.restore()))
	w.settle()
	vm := w.vm("web")
	w.consistent(vm)
	if w.restore().UID != "" || vm.Status.RestoreInProgress != nil || len(w.made()) != 2 || w.dataVolume("root").UID != "" {
		t.Errorf("left are the restore %q, %d claims, lock %v", w.restore().UID, len(w.made()), vm.Status.RestoreInProgress)
	}
}

func refused(t *testing.T, c client.WithWatch) {
	for name, test := range map[string]struct {
		change func(*world)
		target string
		want   string
	}{
		"no snapshot": {func(w *world) {
			w.must(c.Delete(t.Context(), &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "s"}}))
		}, "web", "does not exist"},
		"another VM":       {func(w *world) { w.must(c.Create(t.Context(), fixture.VM(w.namespace, "other"))) }, "other", otherTarget},
		"another snapshot": {func(w *world) { w.status(func(s *virtv1.VirtualMachineStatus) { s.SnapshotInProgress = new("x") }) }, "web", "vm snapshot x in progress"},
		"another restore":  {func(w *world) { w.status(func(s *virtv1.VirtualMachineStatus) { s.RestoreInProgress = new("x") }) }, "web", "vm restore x in progress"},
		"a disk is missing": {func(w *world) {
			content := &snapshotv1.VirtualMachineSnapshotContent{}
			w.must(c.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "content"}, content))
			content.Spec.VolumeBackups = content.Spec.VolumeBackups[:1]
			w.must(c.Update(t.Context(), content))
		}, "copy", "volume data is not in the snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c)
			test.change(w)
			w.ask(test.target)
			w.settle()
			if got := fmt.Sprint(status(w.restore()).Conditions); !strings.Contains(got, test.want) || len(w.made()) > 0 || completed(w.restore()) {
				t.Errorf("the conditions are %s, want %q", got, test.want)
			}
		})
	}
}

func (w *world) status(change func(*virtv1.VirtualMachineStatus)) {
	w.t.Helper()
	vm := w.vm("web")
	change(&vm.Status)
	w.must(w.Status().Update(w.t.Context(), vm))
}

func named(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.ask("web", func(spec *snapshotv1.VirtualMachineRestoreSpec) {
		spec.VolumeRestorePolicy = new(snapshotv1.VolumeRestorePolicyPrefixTargetName)
		spec.VolumeRestoreOverrides = []snapshotv1.VolumeRestoreOverride{{VolumeName: "data", RestoreName: "data", Labels: map[string]string{"by": "hand"}}}
	})
	w.settle()
	if got := fmt.Sprint(status(w.restore()).Conditions); !strings.Contains(got, "PersistentVolumeClaim data exists") {
		t.Errorf("the conditions are %s", got)
	}
	finalizers := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	old := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "data"}}
	w.must(c.Patch(t.Context(), old, finalizers))
	w.must(c.Delete(t.Context(), old))
	w.settle()
	w.isRestored("web")
	if made := w.made(); made["of-root"].Name != "web-root" || made["of-data"].Name != "data" || made["of-data"].Labels["by"] != "hand" {
		t.Errorf("the claims are %v", made)
	}
}

func ofNobody(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.ask("web", func(spec *snapshotv1.VirtualMachineRestoreSpec) {
		spec.VolumeOwnershipPolicy = new(snapshotv1.VolumeOwnershipPolicyNone)
	})
	w.settle()
	if !completed(w.restore()) {
		t.Fatalf("the restore is %+v", w.restore().Status)
	}
	vm, root, data := w.vm("web"), w.made()["of-root"], w.made()["of-data"]
	volumes := vm.Spec.Template.Spec.Volumes
	if len(vm.Spec.DataVolumeTemplates) > 0 || volumes[0].PersistentVolumeClaim == nil || volumes[0].PersistentVolumeClaim.ClaimName != root.Name || volumes[1].PersistentVolumeClaim.ClaimName != data.Name {
		t.Errorf("the VM has the templates %+v and the volumes %+v", vm.Spec.DataVolumeTemplates, volumes)
	}
	for _, claim := range []*corev1.PersistentVolumeClaim{root, data} {
		if len(claim.OwnerReferences) > 0 || claim.Labels[keep.LabelFor] != "" || claim.Annotations["cdi.kubevirt.io/allowClaimAdoption"] != "" {
			t.Errorf("claim %s is %+v", claim.Name, claim.ObjectMeta)
		}
	}
	if dv := w.dataVolume(root.Name); dv.UID != "" {
		t.Errorf("there is a DataVolume of the claim: %+v", dv)
	}
}
