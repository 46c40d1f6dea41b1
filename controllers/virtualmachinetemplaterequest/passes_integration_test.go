//go:build integration

package virtualmachinetemplaterequest

import (
	"strings"
	"testing"
	"time"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/breaking"
)

// TestARequest makes single passes against a real API server, with virt-controller's rights and no others. The test takes the snapshots
// and fills the DataVolumes.
func TestARequest(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"template.kubevirt.io", "kubevirt.io_virtualmachines", "snapshot.kubevirt.io", "cdi.kubevirt.io_datavolumes", "snapshot.storage.k8s.io")
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
	own := apiserver.As(t, config, "virt-controller", "../hyperconverged/components/virt-controller/rbac.yaml", &vmtemplatev1beta1.VirtualMachineTemplateRequestList{})
	for name, test := range map[string]func(*world){
		"for a VM of another namespace":                 ofVM,
		"that is broken off at any write":               broken,
		"waits for its VM":                              waitsForVM,
		"of disks that cannot be taken":                 ofPlainDisks,
		"whose template's name is taken":                nameTaken,
		"whose snapshot fails":                          snapshotFails,
		"whose snapshot is taken anew":                  snapshotReplaced,
		"whose copy fails":                              copyFails,
		"of a VM whose instance type is gone":           typeGone,
		"that is deleted takes all back":                deleted,
		"that is deleted when it is ready leaves it be": deletedWhenReady,
		"goes in its time":                              expires,
	} {
		t.Run(name, func(t *testing.T) { test(newWorld(t, c, own)) })
	}
}

// world is a namespace with VM web, on a claim of a storage that takes snapshots, and another for templates.
type world struct {
	client.WithWatch
	// own has virt-controller's rights.
	own          client.Client
	t            *testing.T
	builds, shop string
	recorder     *events.FakeRecorder
	now          time.Time
}

func newWorld(t *testing.T, c client.WithWatch, own client.Client) *world {
	t.Helper()
	w := &world{WithWatch: c, own: own, t: t, recorder: events.NewFakeRecorder(1000), now: time.Now()}
	for _, into := range []*string{&w.builds, &w.shop} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
		w.must(c.Create(t.Context(), namespace))
		*into = namespace.Name
	}
	w.claim("data", "fast")
	w.must(c.Create(t.Context(), fixture.VM(w.builds, "web", fixture.Claim("data", "data"), fixture.CloudInit(script))))
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
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.builds, Name: name}}
	claim.Spec.StorageClassName = &class
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.must(w.Create(w.t.Context(), claim))
}

// ask creates request golden.
func (w *world) ask(changes ...func(*vmtemplatev1beta1.VirtualMachineTemplateRequestSpec)) *vmtemplatev1beta1.VirtualMachineTemplateRequest {
	w.t.Helper()
	request := newRequest(changes...)
	request.ObjectMeta = metav1.ObjectMeta{Namespace: w.shop, Name: "golden"}
	request.Spec.VirtualMachineRef.Namespace = w.builds
	w.must(w.Create(w.t.Context(), request))
	return request
}

// pass makes one pass, with a client that may break.
func (w *world) pass(c client.Client) (ctrl.Result, error) {
	r := &Reconciler{Client: c, live: w.own, events: w.recorder, now: func() time.Time { return w.now }}
	return r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: w.shop, Name: "golden"}})
}

func (w *world) passes() ctrl.Result {
	w.t.Helper()
	result, err := w.pass(w.own)
	w.must(err)
	return result
}

// play is the controllers of snapshots and of DataVolumes.
func (w *world) play() {
	w.t.Helper()
	for _, snapshot := range w.snapshots() {
		if snapshot.Status == nil {
			w.take(&snapshot)
		}
	}
	for _, dv := range w.disks() {
		if dv.Status.Phase == "" {
			w.fill(&dv, cdiv1.Succeeded, "")
		}
	}
}

func (w *world) take(snapshot *snapshotv1.VirtualMachineSnapshot) {
	w.t.Helper()
	vm := &virtv1.VirtualMachine{}
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.builds, Name: snapshot.Spec.Source.Name}, vm))
	content := taken(vm, "data")
	content.Name = "of-" + string(snapshot.UID)
	content.Spec.VirtualMachineSnapshotName = &snapshot.Name
	content.Spec.VolumeBackups[0].VolumeSnapshotName = new("data-" + string(snapshot.UID))
	w.must(w.Create(w.t.Context(), content))
	content.Status = &snapshotv1.VirtualMachineSnapshotContentStatus{ReadyToUse: new(true), CreationTime: new(metav1.Now())}
	w.must(w.Status().Update(w.t.Context(), content))
	snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{ReadyToUse: new(true), Phase: snapshotv1.Succeeded, VirtualMachineSnapshotContentName: &content.Name}
	w.must(w.Status().Update(w.t.Context(), snapshot))
}

func (w *world) fill(dv *cdiv1.DataVolume, phase cdiv1.DataVolumePhase, message string) {
	w.t.Helper()
	dv.Status.Phase = phase
	dv.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Message: message}}
	w.must(w.Status().Update(w.t.Context(), dv))
}

// settle makes passes until nothing is left to do.
func (w *world) settle() {
	w.t.Helper()
	for range 6 {
		w.passes()
		w.play()
	}
}

func (w *world) request() *vmtemplatev1beta1.VirtualMachineTemplateRequest {
	w.t.Helper()
	request := &vmtemplatev1beta1.VirtualMachineTemplateRequest{}
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.shop, Name: "golden"}, request))
	return request
}

func (w *world) snapshots() []snapshotv1.VirtualMachineSnapshot {
	w.t.Helper()
	list := &snapshotv1.VirtualMachineSnapshotList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.builds)))
	return list.Items
}

func (w *world) disks() []cdiv1.DataVolume {
	w.t.Helper()
	list := &cdiv1.DataVolumeList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.shop)))
	return list.Items
}

func (w *world) templates() []vmtemplatev1beta1.VirtualMachineTemplate {
	w.t.Helper()
	list := &vmtemplatev1beta1.VirtualMachineTemplateList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.shop)))
	return list.Items
}

// is makes sure of what the request says of itself.
func (w *world) is(ready, progressing metav1.ConditionStatus, reason, why string) {
	w.t.Helper()
	got := w.request().Status
	is := meta.FindStatusCondition(got.Conditions, "Ready")
	if is == nil || is.Status != ready || is.Reason != reason || !strings.Contains(is.Message, why) || !meta.IsStatusConditionPresentAndEqual(got.Conditions, "Progressing", progressing) {
		w.t.Fatalf("the request is %+v, want Ready %s and Progressing %s for %s, %s", got, ready, progressing, reason, why)
	}
}

// isReady makes sure that there is the template with its disk, and nothing else.
func (w *world) isReady() {
	w.t.Helper()
	w.is(metav1.ConditionTrue, metav1.ConditionFalse, "Reconciled", "VirtualMachineTemplate "+w.shop+"/golden is ready")
	templates, disks, request := w.templates(), w.disks(), w.request()
	if len(templates) != 1 || len(disks) != 1 || len(w.snapshots()) != 0 || len(request.Finalizers) != 0 || request.Status.TemplateRef == nil || request.Status.TemplateRef.Name != "golden" {
		w.t.Fatalf("there are %d templates, %d disks and %d snapshots for %+v", len(templates), len(disks), len(w.snapshots()), request)
	}
	if owners := disks[0].OwnerReferences; len(owners) != 1 || owners[0].UID != templates[0].UID || owners[0].Kind != "VirtualMachineTemplate" {
		w.t.Errorf("the disk is owned by %+v", owners)
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&templates[0])
	w.must(err)
	vm := processed(w.t, tree, "web2")
	source := vm.Spec.DataVolumeTemplates[0].Spec.Source.PVC
	if source.Namespace != w.shop || source.Name != disks[0].Name || vm.Spec.Template.Spec.Volumes[1].CloudInitNoCloud.UserData != script {
		w.t.Errorf("the VM is %+v", vm.Spec)
	}
}

// nothing makes sure that nothing is left of what was made.
func (w *world) nothing() {
	w.t.Helper()
	if templates, disks, snapshots := w.templates(), w.disks(), w.snapshots(); len(templates)+len(disks)+len(snapshots) > 0 {
		w.t.Errorf("left are %v, %v and %v", templates, disks, snapshots)
	}
}

func (w *world) failed(why string) {
	w.t.Helper()
	w.settle()
	w.is(metav1.ConditionFalse, metav1.ConditionFalse, "Failed", why)
	if request := w.request(); len(request.Finalizers) > 0 || request.Status.TemplateRef != nil {
		w.t.Errorf("the request is %+v", request)
	}
	if event := <-w.recorder.Events; !strings.HasPrefix(event, "Warning Failed ") || len(w.recorder.Events) > 0 {
		w.t.Errorf("told %s, and %d more", event, len(w.recorder.Events))
	}
}

func ofVM(w *world) {
	request := w.ask()
	w.passes()
	w.is(metav1.ConditionFalse, metav1.ConditionTrue, "Waiting", "Waiting for VirtualMachineSnapshot "+w.builds+"/tmp-template-"+string(request.UID)+" to be ready")
	w.play()
	w.passes()
	w.is(metav1.ConditionFalse, metav1.ConditionTrue, "Waiting", "Waiting for DataVolume "+w.shop+"/golden-data-")
	if dv := w.disks()[0]; !metav1.IsControlledBy(&dv, request) || dv.Spec.Source.Snapshot.Namespace != w.builds || len(w.templates()) > 0 {
		w.t.Errorf("the disk is %+v", dv)
	}
	w.settle()
	w.isReady()
	if event := <-w.recorder.Events; event != "Normal Reconciled VirtualMachineTemplate "+w.shop+"/golden is ready" || len(w.recorder.Events) > 0 {
		w.t.Errorf("told %s, and %d more", event, len(w.recorder.Events))
	}
	if result := w.passes(); result != (ctrl.Result{}) {
		w.t.Errorf("the last pass wants %+v", result)
	}
}

// Wherever the controller is killed, the next one ends what was begun.
func broken(w *world) {
	t, c := w.t, w.WithWatch
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			b := &breaking.Writes{N: n, After: after}
			t.Run(b.String(), func(t *testing.T) {
				w := newWorld(t, c, w.own)
				w.ask()
				for range 6 {
					if !b.Broken {
						_, _ = w.pass(b.Client(c))
						w.play()
					}
				}
				w.settle()
				w.isReady()
			})
			if !b.Broken {
				break
			}
		}
	}
}

func waitsForVM(w *world) {
	w.ask(func(spec *vmtemplatev1beta1.VirtualMachineTemplateRequestSpec) { spec.VirtualMachineRef.Name = "later" })
	w.passes()
	w.is(metav1.ConditionFalse, metav1.ConditionTrue, "Waiting", "Waiting for VirtualMachine "+w.builds+"/later to be created")
	later := fixture.VM(w.builds, "later", fixture.Claim("data", "data"), fixture.CloudInit(script))
	if request := w.request(); len(request.Finalizers) > 0 || !waitsFor(request, later) {
		w.t.Errorf("the request is %+v", request)
	}
	w.must(w.Create(w.t.Context(), later))
	w.settle()
	w.isReady()
	if waitsFor(w.request(), later) {
		w.t.Error("a request that is ready waits for its VM")
	}
}

func ofPlainDisks(w *world) {
	w.claim("plain", "plain")
	w.must(w.Create(w.t.Context(), fixture.VM(w.builds, "plain", fixture.Claim("plain", "plain"), fixture.Claim("missing", "missing"))))
	w.ask(func(spec *vmtemplatev1beta1.VirtualMachineTemplateRequestSpec) { spec.VirtualMachineRef.Name = "plain" })
	if result := w.passes(); result.RequeueAfter != retry {
		w.t.Errorf("the pass wants %+v", result)
	}
	w.is(metav1.ConditionFalse, metav1.ConditionTrue, "Waiting", "Virtual Machine volume plain does not support snapshots\nVirtual Machine volume missing snapshot support unknown")
	w.nothing()
}

func nameTaken(w *world) {
	other := &vmtemplatev1beta1.VirtualMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: w.shop, Name: "golden"}}
	other.Spec.VirtualMachine = &runtime.RawExtension{Raw: []byte("{}")}
	w.must(w.Create(w.t.Context(), other))
	w.ask()
	w.failed("existing VirtualMachineTemplate " + w.shop + "/golden was not created by this request")
	if templates := w.templates(); len(templates) != 1 || templates[0].UID != other.UID || len(w.disks()) > 0 || len(w.snapshots()) > 0 {
		w.t.Errorf("there are %+v", templates)
	}
}

func snapshotFails(w *world) {
	w.ask()
	w.passes()
	snapshot := w.snapshots()[0]
	snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{Phase: snapshotv1.Failed, Conditions: []snapshotv1.Condition{{
		Type: snapshotv1.ConditionFailure, Status: corev1.ConditionTrue, Reason: "snapshot deadline exceeded", Message: "the agent refused",
	}}}
	w.must(w.Status().Update(w.t.Context(), &snapshot))
	w.failed("VirtualMachineSnapshot " + w.builds + "/" + snapshot.Name + " failed: snapshot deadline exceeded: the agent refused")
	w.nothing()
}

// Somebody deletes the snapshot while its disks are copied: what would be copied of another is not of the same moment.
func snapshotReplaced(w *world) {
	w.ask()
	w.passes()
	w.play()
	w.passes()
	snapshot := w.snapshots()[0]
	w.must(w.Delete(w.t.Context(), &snapshot))
	w.failed("was not made from VirtualMachineSnapshot")
	w.nothing()
}

func copyFails(w *world) {
	w.ask()
	w.passes()
	w.play()
	w.passes()
	dv := w.disks()[0]
	w.fill(&dv, cdiv1.Failed, "no space left")
	w.failed("DataVolume " + w.shop + "/" + dv.Name + " failed: no space left")
	w.nothing()
}

func typeGone(w *world) {
	w.must(w.Create(w.t.Context(), fixture.VM(w.builds, "typed", fixture.Claim("data", "data"), fixture.Sizes("none", "none"))))
	w.ask(func(spec *vmtemplatev1beta1.VirtualMachineTemplateRequestSpec) { spec.VirtualMachineRef.Name = "typed" })
	w.failed("expanding VirtualMachine " + w.builds + "/typed: finding the instance type: ")
	w.nothing()
}

// However far it is, nothing stays of a request that is deleted before it is ready.
func deleted(w *world) {
	t, c, own := w.t, w.WithWatch, w.own
	for name, at := range map[string]struct{ passes, write int }{
		"before anything": {}, "with a snapshot": {passes: 1}, "with a disk": {passes: 2},
		"with a template": {passes: 2, write: 2}, "with all but its word": {passes: 2, write: 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c, own)
			request := w.ask()
			for range at.passes {
				w.passes()
				w.play()
			}
			if b := (&breaking.Writes{N: at.write}); at.write > 0 {
				_, _ = w.pass(b.Client(c))
				if len(w.templates()) != 1 || ready(w.request()) {
					t.Fatalf("there are %d templates for %+v", len(w.templates()), w.request())
				}
			}
			w.must(w.Delete(t.Context(), request))
			w.passes()
			w.nothing()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(request), request); !apierrors.IsNotFound(err) {
				t.Errorf("the request is there: %v, %+v", err, request)
			}
		})
	}
}

func deletedWhenReady(w *world) {
	request := w.ask()
	for range 3 {
		w.passes()
		w.play()
	}
	w.is(metav1.ConditionTrue, metav1.ConditionFalse, "Reconciled", "")
	w.must(w.Delete(w.t.Context(), request)) // its snapshot is there still
	w.passes()
	if len(w.snapshots()) > 0 || len(w.templates()) != 1 || len(w.disks()) != 1 {
		w.t.Errorf("there are %d snapshots, %d templates and %d disks", len(w.snapshots()), len(w.templates()), len(w.disks()))
	}
}

func expires(w *world) {
	request := w.ask(func(spec *vmtemplatev1beta1.VirtualMachineTemplateRequestSpec) {
		spec.TTLSecondsAfterFinished = new(int32(60))
	})
	w.settle()
	if result := w.passes(); result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute {
		w.t.Errorf("the pass wants %+v", result)
	}
	w.isReady()
	w.now = w.now.Add(time.Minute + time.Second)
	w.passes()
	if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(request), request); !apierrors.IsNotFound(err) || len(w.templates()) != 1 || len(w.disks()) != 1 {
		w.t.Errorf("the request is %v, %+v", err, request)
	}
}
