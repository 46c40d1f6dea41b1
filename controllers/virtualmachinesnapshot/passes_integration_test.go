//go:build integration

package virtualmachinesnapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/breaking"
)

// TestASnapshot makes single passes against a real API server. The test is the storage driver, the node and virt-api.
func TestASnapshot(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"snapshot.kubevirt.io", "kubevirt.io_virtualmachines", "kubevirt.io_virtualmachineinstances", "snapshot.storage.k8s.io", "cdi.kubevirt.io_storageprofiles")
	config := apiserver.Start(t, kinds...)
	config.QPS = -1 // it asks for much, one after the other
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	prepareStorage(t, c)
	for name, test := range map[string]func(*testing.T, client.WithWatch){
		"of a running VM with an agent":                          ofRunning,
		"that is broken off at any write":                        broken,
		"of a stopped VM waits for pods on its disk":             ofStopped,
		"of a paused VM says so":                                 ofPaused,
		"whose guest cannot be held tries again":                 unheld,
		"that takes too long lets all go":                        tooLong,
		"is taken one at a time":                                 oneAtATime,
		"goes with its content, or leaves it":                    removed,
		"has what a guest runs with, not what its VM says since": ofOlderSpec,
		"has no part of two instance types":                      ofOtherType,
		"of a VM that keeps a state has that, too":               ofState,
		"leaves out a state whose storage takes none":            ofPlainState,
		"of a state waits for what it is of":                     ofUnreadyState,
		"of a VM of an instance type has a copy of that":         ofAType,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

func prepareStorage(t *testing.T, c client.Client) {
	t.Helper()
	for _, object := range []client.Object{
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.example.com"},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Provisioner: "other.example.com"},
		&csiv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "snaps"}, Driver: "csi.example.com", DeletionPolicy: csiv1.VolumeSnapshotContentDelete},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// world is a namespace with VM web on claims root and data, of which snapshots are taken, and scratch, of which none can be.
type world struct {
	client.WithWatch
	t         *testing.T
	namespace string
	recorder  *events.FakeRecorder
	now       time.Time
	// calls are what was asked of the guest; refuses what it answers with.
	calls   []string
	refuses error
}

func newWorld(t *testing.T, c client.WithWatch, running bool) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w := &world{WithWatch: c, t: t, recorder: events.NewFakeRecorder(1000), now: time.Now()}
	w.must(c.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	vm := fixture.VM(w.namespace, "web", fixture.Claim("root", "root"), fixture.Claim("data", "data"), fixture.Claim("scratch", "scratch"), fixture.CloudInit("#cloud-config"))
	vm.Labels = map[string]string{"team": "a"}
	w.must(c.Create(t.Context(), vm))
	for claim, class := range map[string]string{"root": "fast", "data": "fast", "scratch": "plain"} {
		w.claim(claim, class)
	}
	if running {
		w.run(vm)
	}
	w.ask("s", nil)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) claim(name, class string) {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	claim.Spec.StorageClassName = &class
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.must(w.Create(w.t.Context(), claim))
	claim.Status.Phase = corev1.ClaimBound
	w.must(w.Status().Update(w.t.Context(), claim))
}

// run plays virt-handler: the VM runs, and its guest has an agent.
func (w *world) run(vm *virtv1.VirtualMachine) {
	w.t.Helper()
	vmi := &virtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: vm.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)},
		},
		Spec: vm.Spec.Template.Spec,
		Status: virtv1.VirtualMachineInstanceStatus{
			Phase:      virtv1.Running,
			Conditions: []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue}},
		},
	}
	w.must(w.Create(w.t.Context(), vmi))
	vm.Status.ObservedGeneration = vm.Generation
	w.must(w.Status().Update(w.t.Context(), vm))
}

// ask creates a snapshot.
func (w *world) ask(name string, policy *snapshotv1.DeletionPolicy) {
	w.t.Helper()
	w.must(w.Create(w.t.Context(), &snapshotv1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: snapshotv1.VirtualMachineSnapshotSpec{
			Source: corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}, DeletionPolicy: policy,
		},
	}))
}

// Freeze plays virt-api and the node.
func (w *world) Freeze(_ context.Context, _ client.ObjectKey, limit time.Duration) error {
	if w.refuses != nil {
		return w.refuses
	}
	w.calls = append(w.calls, "freeze "+limit.String())
	w.change(func(vmi *virtv1.VirtualMachineInstance) { vmi.Status.FSFreezeStatus = frozen })
	return nil
}

// Unfreeze plays them, too.
func (w *world) Unfreeze(context.Context, client.ObjectKey) error {
	w.calls = append(w.calls, "unfreeze")
	w.change(func(vmi *virtv1.VirtualMachineInstance) { vmi.Status.FSFreezeStatus = "" })
	return nil
}

func (w *world) vmi() *virtv1.VirtualMachineInstance {
	w.t.Helper()
	vmi := &virtv1.VirtualMachineInstance{}
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web"}, vmi))
	return vmi
}

func (w *world) change(change func(*virtv1.VirtualMachineInstance)) {
	w.t.Helper()
	vmi := w.vmi()
	change(vmi)
	w.must(w.Update(w.t.Context(), vmi))
}

// pass makes one pass over a snapshot, with a client and a guest that may break.
func (w *world) pass(c client.Client, guests Guests, name string) error {
	r := &Reconciler{Client: c, live: w.WithWatch, guests: guests, events: w.recorder, now: func() time.Time { return w.now }}
	_, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: name}})
	return err
}

// settle makes passes, and plays the storage, until nothing is left to do.
func (w *world) settle(name string) {
	w.t.Helper()
	for range 5 {
		w.must(w.pass(w.WithWatch, w, name))
		w.take()
	}
}

// take plays the storage: what is asked for is taken, of a guest that stands still if it can.
func (w *world) take() {
	w.t.Helper()
	for _, snapshot := range w.volumes() {
		if snapshot.Status != nil {
			continue
		}
		vmi := &virtv1.VirtualMachineInstance{}
		err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web"}, vmi)
		if err == nil && len(vmi.Status.Conditions) == 1 && vmi.Status.FSFreezeStatus != frozen {
			w.t.Errorf("%s is taken of a guest that goes on", snapshot.Name)
		}
		now := metav1.Now()
		snapshot.Status = &csiv1.VolumeSnapshotStatus{CreationTime: &now, ReadyToUse: new(true), RestoreSize: new(resource.MustParse("1Gi"))}
		w.must(w.Status().Update(w.t.Context(), snapshot))
	}
}

func (w *world) volumes() []*csiv1.VolumeSnapshot {
	w.t.Helper()
	list := &csiv1.VolumeSnapshotList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	var all []*csiv1.VolumeSnapshot
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

func (w *world) contents() []snapshotv1.VirtualMachineSnapshotContent {
	w.t.Helper()
	list := &snapshotv1.VirtualMachineSnapshotContentList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	return list.Items
}

func (w *world) snapshot(name string) *snapshotv1.VirtualMachineSnapshot {
	w.t.Helper()
	snapshot := &snapshotv1.VirtualMachineSnapshot{}
	w.must(client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, snapshot)))
	return snapshot
}

func (w *world) vm() *virtv1.VirtualMachine {
	w.t.Helper()
	vm := &virtv1.VirtualMachine{}
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web"}, vm))
	return vm
}

func (w *world) unlocked() {
	w.t.Helper()
	if vm := w.vm(); vm.Status.SnapshotInProgress != nil || slices.Contains(vm.Finalizers, FinalizerSource) {
		w.t.Errorf("the VM is locked: %v, %v", vm.Status.SnapshotInProgress, vm.Finalizers)
	}
}

// taken makes sure that the snapshot is whole, and that nothing is held any more.
func (w *world) taken(name string, indications ...snapshotv1.Indication) *snapshotv1.VirtualMachineSnapshotContent {
	w.t.Helper()
	w.unlocked()
	snapshot := w.snapshot(name)
	got := status(snapshot)
	if got.Phase != snapshotv1.Succeeded || !Ready(snapshot) || got.CreationTime == nil || got.Error != nil || !slices.Equal(namesOf(got.SourceIndications), indications) ||
		*got.SourceUID != w.vm().UID {
		w.t.Fatalf("the snapshot is %+v", got)
	}
	if lists := got.SnapshotVolumes; lists == nil || !slices.Equal(lists.IncludedVolumes, []string{"root", "data"}) || !slices.Equal(lists.ExcludedVolumes, []string{"scratch", "cloudinit"}) {
		w.t.Errorf("the volumes are %+v", lists)
	}
	for _, c := range got.Conditions {
		if (c.Status == corev1.ConditionTrue) != (c.Type == snapshotv1.ConditionReady) {
			w.t.Errorf("condition %+v", c)
		}
	}
	for _, content := range w.contents() {
		if content.Name != *got.VirtualMachineSnapshotContentName {
			continue
		}
		source := content.Spec.Source.VirtualMachine
		if source.Name != "web" || source.Labels["team"] != "a" || len(content.Spec.VolumeBackups) != 2 || !ContentReady(&content) {
			w.t.Errorf("the content is %+v", content)
		}
		return &content
	}
	w.t.Fatal("there is no content")
	return nil
}

func ofRunning(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, true)
	w.must(w.pass(c, w, "s"))
	if got := status(w.snapshot("s")); got.Phase != snapshotv1.InProgress || *w.vm().Status.SnapshotInProgress != "s" {
		t.Errorf("while it is taken the snapshot is %+v", got)
	}
	w.settle("s")
	content := w.taken("s", snapshotv1.VMSnapshotGuestAgentIndication, snapshotv1.VMSnapshotOnlineSnapshotIndication)
	if want := []string{"freeze 5m0s", "unfreeze"}; !slices.Equal(w.calls, want) {
		t.Errorf("the guest was asked to %v, want %v", w.calls, want)
	}
	volumes := w.volumes()
	if len(volumes) != 2 || !metav1.IsControlledBy(volumes[0], content) || *volumes[0].Spec.VolumeSnapshotClassName != "snaps" {
		t.Errorf("the VolumeSnapshots are %+v", volumes)
	}
	w.must(c.Delete(t.Context(), volumes[0]))
	w.settle("s")
	if got := status(w.snapshot("s")); got.Phase != snapshotv1.Succeeded || *got.ReadyToUse || got.Error == nil || !strings.Contains(*got.Error.Message, volumes[0].Name) {
		t.Errorf("without one of its disks the snapshot is %+v", got)
	}
}

// Wherever the controller is killed, the next one ends what it began.
func broken(t *testing.T, c client.WithWatch) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			b := &breaking.Writes{N: n, After: after}
			t.Run(b.String(), func(t *testing.T) {
				w := newWorld(t, c, true)
				weak := &weakGuests{world: w, writes: b}
				for range 4 {
					if !b.Broken {
						_ = w.pass(b.Client(c), weak, "s")
						w.take()
					}
				}
				w.settle("s")
				w.taken("s", snapshotv1.VMSnapshotGuestAgentIndication, snapshotv1.VMSnapshotOnlineSnapshotIndication)
				if w.vmi().Status.FSFreezeStatus != "" || len(w.volumes()) != 2 || len(w.contents()) != 1 {
					t.Errorf("left are %v, %d VolumeSnapshots, %d contents", w.vmi().Status.FSFreezeStatus, len(w.volumes()), len(w.contents()))
				}
			})
			if !b.Broken {
				break
			}
		}
	}
}

// weakGuests are asked by a controller that may be killed meanwhile.
type weakGuests struct {
	*world
	writes *breaking.Writes
}

func (g *weakGuests) Freeze(ctx context.Context, vmi client.ObjectKey, limit time.Duration) error {
	return g.writes.Do(func() error { return g.world.Freeze(ctx, vmi, limit) })
}

func (g *weakGuests) Unfreeze(ctx context.Context, vmi client.ObjectKey) error {
	return g.writes.Do(func() error { return g.world.Unfreeze(ctx, vmi) })
}

func ofStopped(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, false)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "user"}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	w.must(c.Create(t.Context(), pod))
	w.settle("s")
	w.unlocked()
	if !strings.Contains(fmt.Sprint(status(w.snapshot("s")).Conditions), "1 pods using PVCs root, data, scratch: user") {
		t.Errorf("it does not say what it waits for: %+v", status(w.snapshot("s")))
	}
	w.must(c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	w.settle("s")
	w.taken("s")
	if len(w.calls) > 0 {
		t.Errorf("somebody was asked to %v", w.calls)
	}
}

func ofPaused(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, true)
	w.change(func(vmi *virtv1.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions, virtv1.VirtualMachineInstanceCondition{Type: virtv1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue})
	})
	w.settle("s")
	w.taken("s", snapshotv1.VMSnapshotOnlineSnapshotIndication, snapshotv1.VMSnapshotPausedIndication)
	if len(w.calls) > 0 {
		t.Errorf("the guest was asked to %v", w.calls)
	}
}

func unheld(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, true)
	w.refuses = errors.New("the agent is busy")
	w.settle("s")
	got := status(w.snapshot("s"))
	if got.Error == nil || *got.Error.Message != "the agent is busy" || got.Phase != snapshotv1.InProgress || len(w.volumes()) > 0 {
		t.Fatalf("the snapshot is %+v, with %d VolumeSnapshots", got, len(w.volumes()))
	}
	w.refuses = nil
	w.settle("s")
	w.taken("s", snapshotv1.VMSnapshotGuestAgentIndication, snapshotv1.VMSnapshotOnlineSnapshotIndication)
}

func tooLong(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, true)
	w.must(w.pass(c, w, "s"))
	w.must(w.pass(c, w, "s"))
	if w.vmi().Status.FSFreezeStatus != frozen {
		t.Fatal("the guest goes on before its disks are taken")
	}
	w.now = w.now.Add(6 * time.Minute)
	w.must(w.pass(c, w, "s"))
	w.unlocked()
	got := status(w.snapshot("s"))
	if got.Phase != snapshotv1.Failed || !strings.Contains(fmt.Sprint(got.Conditions), deadlineExceeded) || len(w.contents()) > 0 || w.vmi().Status.FSFreezeStatus != "" {
		t.Errorf("the snapshot is %+v, with %d contents", got, len(w.contents()))
	}
}

func oneAtATime(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, true)
	w.ask("second", nil)
	w.must(w.pass(c, w, "s"))
	w.must(w.pass(c, w, "second"))
	if got := status(w.snapshot("second")); !strings.Contains(fmt.Sprint(got.Conditions), `snapshot "s" in progress`) {
		t.Errorf("the second is %+v", got)
	}
	w.settle("s")
	w.settle("second")
	w.taken("s", snapshotv1.VMSnapshotGuestAgentIndication, snapshotv1.VMSnapshotOnlineSnapshotIndication)
	w.taken("second", snapshotv1.VMSnapshotGuestAgentIndication, snapshotv1.VMSnapshotOnlineSnapshotIndication)
}

func removed(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, false)
	w.ask("kept", new(snapshotv1.VirtualMachineSnapshotContentRetain))
	for _, name := range []string{"s", "kept"} {
		w.settle(name)
		w.taken(name)
		w.must(c.Delete(t.Context(), w.snapshot(name)))
		w.must(w.pass(c, w, name))
		if w.snapshot(name).UID != "" {
			t.Errorf("%s is still there", name)
		}
	}
	if contents := w.contents(); len(contents) != 1 || *contents[0].Spec.VirtualMachineSnapshotName != "kept" || len(contents[0].Finalizers) > 0 || contents[0].DeletionTimestamp != nil {
		t.Errorf("the contents are %+v", contents)
	}
	w.ask("early", new(snapshotv1.VirtualMachineSnapshotContentRetain))
	w.must(w.pass(c, w, "early"))
	w.must(c.Delete(t.Context(), w.snapshot("early")))
	w.must(w.pass(c, w, "early"))
	w.unlocked()
	if len(w.contents()) != 1 || w.snapshot("early").UID != "" {
		t.Error("something is left of a snapshot that was deleted while it was taken")
	}
}

func ofOlderSpec(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, true)
	started := w.vm()
	revision := revisionOf(t, started)
	w.must(c.Create(t.Context(), revision))
	w.change(func(vmi *virtv1.VirtualMachineInstance) { vmi.Status.VirtualMachineRevisionName = revision.Name })
	spec := &started.Spec.Template.Spec
	spec.Domain.Memory.Guest = new(resource.MustParse("1Gi"))
	spec.Domain.Devices.Filesystems = []virtv1.Filesystem{{Name: "data", Virtiofs: &virtv1.FilesystemVirtiofs{}}}
	spec.Domain.Devices.Disks = slices.DeleteFunc(spec.Domain.Devices.Disks, func(disk virtv1.Disk) bool { return disk.Name == "data" })
	w.must(c.Update(t.Context(), started))
	w.settle("s")
	content := w.taken("s", snapshotv1.VMSnapshotGuestAgentIndication, snapshotv1.VMSnapshotOnlineSnapshotIndication)
	if got := content.Spec.Source.VirtualMachine.Spec.Template.Spec.Domain.Memory.Guest.String(); got != "128Mi" {
		t.Errorf("the guest runs with 128Mi, and the snapshot has %s", got)
	}
	if got := content.Spec.Source.VirtualMachine.Spec.Template.Spec.Domain.Devices.Filesystems; len(got) != 1 {
		t.Errorf("what volumes are for is taken as it is, and the snapshot has the filesystems %+v", got)
	}
}

// ofOtherType has a VM run as it started, which is to have an instance type now.
func ofOtherType(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, true)
	started := w.vm()
	revision := revisionOf(t, started)
	w.must(c.Create(t.Context(), revision))
	w.change(func(vmi *virtv1.VirtualMachineInstance) { vmi.Status.VirtualMachineRevisionName = revision.Name })
	started.Spec.Template.Spec.Domain.Memory = nil
	started.Spec.Instancetype = &virtv1.InstancetypeMatcher{Kind: "VirtualMachineInstancetype", Name: "size"}
	w.must(c.Update(t.Context(), started))
	w.settle("s")
	content := w.taken("s", snapshotv1.VMSnapshotGuestAgentIndication, snapshotv1.VMSnapshotOnlineSnapshotIndication)
	if got := content.Spec.Source.VirtualMachine.Spec; got.Instancetype == nil || got.Template.Spec.Domain.Memory != nil {
		t.Errorf("the snapshot has the instance type %+v beside the memory %+v", got.Instancetype, got.Template.Spec.Domain.Memory)
	}
}

// revisionOf is what virt-controller notes of the VM when it starts it.
func revisionOf(t *testing.T, vm *virtv1.VirtualMachine) *appsv1.ControllerRevision {
	t.Helper()
	data, err := json.Marshal(map[string]any{"spec": vm.Spec})
	if err != nil {
		t.Fatal(err)
	}
	return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: "revision"}, Data: runtime.RawExtension{Raw: data}}
}
