//go:build integration

package virtualmachinebackup

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/backup"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestABackup makes single passes against a real API server. The test is the VM's controller and virt-handler.
func TestABackup(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"backup.kubevirt.io", "kubevirt.io_virtualmachines", "kubevirt.io_virtualmachineinstances")
	config := apiserver.Start(t, kinds...)
	config.QPS = -1 // it asks for much, one after the other
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, client.Client){
		"of a running VM, then by a tracker": succeeds,
		"waits for all that it needs":        waits,
		"fails with what its node says":      fails,
		"is lost with its machine":           lost,
		"that is deleted leaves nothing":     deleted,
		"waits for the one before":           inTurn,
		"of a spec that makes no sense":      refused,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// world is a namespace with the VM web, which runs, and the claim backups.
type world struct {
	client.Client
	t         *testing.T
	namespace string
	recorder  *events.FakeRecorder
}

func newWorld(t *testing.T, c client.Client) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w := &world{Client: c, t: t, recorder: events.NewFakeRecorder(1000)}
	w.must(c.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	vm := fixture.VM(w.namespace, "web", fixture.Claim("root", "root"))
	w.must(c.Create(t.Context(), vm))
	w.startVMI(vm)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "backups"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.must(c.Create(t.Context(), claim))
	return w
}

// startVMI is the VM's controller.
func (w *world) startVMI(vm *virtv1.VirtualMachine) {
	w.t.Helper()
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}, Spec: vm.Spec.Template.Spec}
	vmi.Status.Phase = virtv1.Running
	vmi.Status.ChangedBlockTracking = &virtv1.ChangedBlockTrackingStatus{State: virtv1.ChangedBlockTrackingEnabled}
	w.must(w.Create(w.t.Context(), vmi))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// ask makes a backup of what source says.
func (w *world) ask(name string, source corev1.TypedLocalObjectReference) *backupv1.VirtualMachineBackup {
	w.t.Helper()
	b := &backupv1.VirtualMachineBackup{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	b.Spec = backupv1.VirtualMachineBackupSpec{Source: source, PvcName: new("backups")}
	w.must(w.Create(w.t.Context(), b))
	return b
}

var (
	ofMachine = corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}
	ofTracker = corev1.TypedLocalObjectReference{APIGroup: new("backup.kubevirt.io"), Kind: kindTracker, Name: "daily"}
)

// pass makes passes until nothing changes any more, and reads the backup; it is false when that is gone.
func (w *world) pass(b *backupv1.VirtualMachineBackup) bool {
	w.t.Helper()
	r := &Reconciler{Client: w.Client, live: w.Client, events: w.recorder, now: time.Now}
	key := client.ObjectKeyFromObject(b)
	for range 5 {
		if _, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			w.t.Fatal(err)
		}
		err := w.Get(w.t.Context(), key, b)
		if apierrors.IsNotFound(err) {
			return false
		}
		w.must(err)
	}
	return true
}

func (w *world) vmi() *virtv1.VirtualMachineInstance {
	w.t.Helper()
	vmi := &virtv1.VirtualMachineInstance{}
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web"}, vmi))
	return vmi
}

// asked is what the VMI is asked for.
func (w *world) asked() *backup.Request {
	w.t.Helper()
	request, err := backup.Requested(w.vmi())
	w.must(err)
	return request
}

// tells is virt-handler: what it says of the backup, and of the volume with the reason.
func (w *world) tells(reason string, status *virtv1.VirtualMachineInstanceBackupStatus) {
	w.t.Helper()
	vmi, request := w.vmi(), w.asked()
	vmi.Status.VolumeStatus = []virtv1.VolumeStatus{{Name: request.Volume(), Phase: virtv1.HotplugVolumeMounted, Reason: reason}}
	status.BackupName = request.Name
	vmi.Status.ChangedBlockTracking.BackupStatus = status
	w.must(w.Update(w.t.Context(), vmi))
}

// forgets is virt-handler once it is asked for no backup.
func (w *world) forgets() {
	w.t.Helper()
	vmi := w.vmi()
	vmi.Status.VolumeStatus, vmi.Status.ChangedBlockTracking.BackupStatus = nil, nil
	w.must(w.Update(w.t.Context(), vmi))
}

// is fails unless the backup has the condition, with the reason and what is in its message.
func (w *world) is(b *backupv1.VirtualMachineBackup, kind backupv1.ConditionType, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	if b.Status == nil {
		w.t.Fatalf("%s has no status", b.Name)
	}
	c := meta.FindStatusCondition(b.Status.Conditions, string(kind))
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
		text, _ := json.Marshal(b.Status)
		w.t.Fatalf("%s is not %s %s %s %q: %s", b.Name, kind, status, reason, message, text)
	}
}

func succeeds(t *testing.T, c client.Client) {
	w := newWorld(t, c)
	b := w.ask("first", ofMachine)
	w.pass(b)
	w.is(b, backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonInitiated, "in progress")
	if request := w.asked(); request == nil || request.UID != b.UID || request.Claim != "backups" || request.Tracker != "" || !held(b) {
		t.Fatalf("asked for %+v, finalizers %v", request, b.Finalizers)
	}
	began := metav1.Now().Rfc3339Copy()
	volumes := []backupv1.BackupVolumeInfo{{VolumeName: "root", DiskTarget: "vda"}}
	status := &virtv1.VirtualMachineInstanceBackupStatus{StartTimestamp: &began, Volumes: volumes, QuiesceStatus: "Failed"}
	w.tells(backup.ReasonFull, status)
	w.pass(b)
	w.is(b, backupv1.ConditionQuiesced, metav1.ConditionFalse, backupv1.ReasonQuiesceFailed, "failed")
	w.is(b, backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonInitiated, "in progress")
	if b.Status.Type != backupv1.Full || len(b.Status.IncludedVolumes) != 1 {
		t.Errorf("got %+v", b.Status)
	}
	status.Completed, status.BackupMsg = true, new("no agent")
	w.tells(backup.ReasonFull, status)
	w.pass(b)
	w.is(b, backupv1.ConditionComplete, metav1.ConditionTrue, backupv1.ReasonCompletedWithWarning, "warning: no agent")
	w.is(b, backupv1.ConditionProgressing, metav1.ConditionFalse, backupv1.ReasonCompletedWithWarning, "no agent")
	if w.asked() != nil || !held(b) {
		t.Errorf("it is asked for still, or was let go of before its node let go")
	}
	w.forgets()
	if w.pass(b); held(b) {
		t.Error("it is held still")
	}

	tracker := &backupv1.VirtualMachineBackupTracker{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "daily"}}
	tracker.Spec.Source = ofMachine
	w.must(w.Create(t.Context(), tracker))
	for i, name := range []string{"monday", "tuesday"} {
		b := w.ask(name, ofTracker)
		w.pass(b)
		request := w.asked()
		if request == nil || request.Tracker != tracker.UID || (request.Base == "") != (i == 0) {
			t.Fatalf("%s asks for %+v", name, request)
		}
		w.tells(backup.ReasonIncremental, &virtv1.VirtualMachineInstanceBackupStatus{
			StartTimestamp: &began, Volumes: volumes, Completed: true, CheckpointName: new(request.Checkpoint()), QuiesceStatus: "Succeeded",
		})
		w.pass(b)
		w.is(b, backupv1.ConditionComplete, metav1.ConditionTrue, backupv1.ReasonCompleted, completed)
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(tracker), tracker))
		if b.Status.Type != backupv1.Incremental || *b.Status.CheckpointName != request.Checkpoint() || tracker.Status.LatestCheckpoint.Name != request.Checkpoint() {
			t.Errorf("%+v, tracker %+v", b.Status, tracker.Status)
		}
		w.forgets()
		w.pass(b)
	}
}

func waits(t *testing.T, c client.Client) {
	w := newWorld(t, c)
	b := w.ask("early", ofTracker)
	w.pass(b)
	w.is(b, backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonInitializing, "BackupTracker daily does not exist")
	other := w.ask("other", corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "db"})
	w.pass(other)
	w.is(other, backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonInitializing, "doesnt exist")
	vmi := w.vmi()
	vmi.Status.ChangedBlockTracking.State = virtv1.ChangedBlockTrackingDisabled
	w.must(w.Update(t.Context(), vmi))
	b = w.ask("untracked", ofMachine)
	w.pass(b)
	w.is(b, backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonInitializing, "no ChangedBlockTracking")
	vmi = w.vmi()
	vmi.Status.ChangedBlockTracking.State = virtv1.ChangedBlockTrackingEnabled
	w.must(w.Update(t.Context(), vmi))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "backups"}}
	claim.Finalizers = nil
	w.must(w.Delete(t.Context(), claim))
	w.must(client.IgnoreNotFound(w.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
	w.pass(b)
	w.is(b, backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonInitializing, "doesnt exist")
	if held(b) || w.asked() != nil {
		t.Error("what waits is asked for, or held")
	}
}

func fails(t *testing.T, c client.Client) {
	w := newWorld(t, c)
	b := w.ask("full", ofMachine)
	w.pass(b)
	w.tells(backup.ReasonFull, &virtv1.VirtualMachineInstanceBackupStatus{Completed: true, Failed: true, BackupMsg: new("No space left on device")})
	w.pass(b)
	w.is(b, backupv1.ConditionFailed, metav1.ConditionTrue, backupv1.ReasonFailed, "Backup has failed: No space left on device")
	w.is(b, backupv1.ConditionProgressing, metav1.ConditionFalse, backupv1.ReasonFailed, "")
	if w.asked() != nil {
		t.Error("it is asked for still")
	}
	own := &backupv1.VirtualMachineBackup{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "onto-itself"}}
	own.Spec = backupv1.VirtualMachineBackupSpec{Source: ofMachine, PvcName: new("root")}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "root"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.must(w.Create(t.Context(), claim))
	w.must(w.Create(t.Context(), own))
	w.pass(own)
	w.is(own, backupv1.ConditionFailed, metav1.ConditionTrue, backupv1.ReasonFailed, "is volume root of the machine")
}

func lost(t *testing.T, c client.Client) {
	w := newWorld(t, c)
	b := w.ask("lost", ofMachine)
	w.pass(b)
	vm := &virtv1.VirtualMachine{}
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web"}, vm))
	w.must(w.Delete(t.Context(), w.vmi()))
	w.startVMI(vm)
	w.pass(b)
	w.is(b, backupv1.ConditionFailed, metav1.ConditionTrue, backupv1.ReasonSourceLost, "VMI was deleted during backup")
	if held(b) || w.asked() != nil {
		t.Error("it is held, or asked of the new instance")
	}
}

func deleted(t *testing.T, c client.Client) {
	w := newWorld(t, c)
	b := w.ask("gone", ofMachine)
	w.pass(b)
	w.tells(backup.ReasonFull, &virtv1.VirtualMachineInstanceBackupStatus{})
	w.must(w.Delete(t.Context(), b))
	if !w.pass(b) {
		t.Fatal("it is gone while its node writes it")
	}
	w.is(b, backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonAborting, aborting)
	if w.asked() != nil {
		t.Error("it is asked for still")
	}
	w.forgets()
	if w.pass(b) {
		t.Errorf("it stays: %+v", b)
	}
}

func inTurn(t *testing.T, c client.Client) {
	w := newWorld(t, c)
	first, second := w.ask("first", ofMachine), w.ask("second", ofMachine)
	w.pass(first)
	w.pass(second)
	w.is(second, backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonInitializing, "another backup first is already in progress")
	w.tells(backup.ReasonFull, &virtv1.VirtualMachineInstanceBackupStatus{Completed: true})
	w.pass(first)
	w.pass(second)
	if request := w.asked(); request == nil || request.UID != second.UID {
		t.Fatalf("asked for %+v", request)
	}
	w.is(second, backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonInitiated, "") // what is told is of the first
}

func refused(t *testing.T, c client.Client) {
	w := newWorld(t, c)
	for name, spec := range map[string]backupv1.VirtualMachineBackupSpec{
		"pvcName is required":   {Source: ofMachine},
		"kind must be":          {Source: corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "Pod", Name: "x"}, PvcName: new("backups")},
		"tokenSecretRef is req": {Source: ofMachine, PvcName: new("backups"), Mode: new(backupv1.PullMode)},
	} {
		b := &backupv1.VirtualMachineBackup{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "x-"}, Spec: spec}
		if err := w.Create(t.Context(), b); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	b := w.ask("kept", ofMachine)
	b.Spec.SkipQuiesce = true
	if err := w.Update(t.Context(), b); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("got %v", err)
	}
}
