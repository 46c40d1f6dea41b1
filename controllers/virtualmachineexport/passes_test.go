package virtualmachineexport

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/vmexport"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// shelf is a namespace. It has no status to write: whoever tries panics.
type shelf struct {
	client.Client
	objects map[string]client.Object
	// refuses says what goes wrong with what is asked for, such as "create *v1.Pod".
	refuses map[string]error
}

func nameOf(object client.Object, name string) string { return fmt.Sprintf("%T %s", object, name) }

func (s *shelf) put(objects ...client.Object) {
	for _, object := range objects {
		s.objects[nameOf(object, object.GetName())] = object
	}
}

func (s *shelf) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if err := s.refuses[fmt.Sprintf("get %T", into)]; err != nil {
		return err
	}
	object := s.objects[nameOf(into, key.Name)]
	if object == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
	return nil
}

func (s *shelf) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	asked := client.ListOptions{LabelSelector: labels.Everything()}
	asked.ApplyOptions(options)
	if err := s.refuses[fmt.Sprintf("list %T", into)]; err != nil {
		return err
	}
	for _, object := range s.objects {
		if !asked.LabelSelector.Matches(labels.Set(object.GetLabels())) {
			continue
		}
		switch list := into.(type) {
		case *corev1.PodList:
			list.Items = appended(list.Items, object)
		case *corev1.PersistentVolumeClaimList:
			list.Items = appended(list.Items, object)
		case *exportv1.VirtualMachineExportList:
			list.Items = appended(list.Items, object)
		case *networkingv1.IngressList:
			list.Items = appended(list.Items, object)
		case *routev1.RouteList:
			list.Items = appended(list.Items, object)
		}
	}
	return nil
}

func appended[T any](items []T, object client.Object) []T {
	if one, ok := object.(any).(*T); ok {
		return append(items, *one)
	}
	return items
}

func (s *shelf) Create(_ context.Context, object client.Object, options ...client.CreateOption) error {
	asked := client.CreateOptions{}
	asked.ApplyOptions(options)
	switch {
	case s.refuses[fmt.Sprintf("create %T", object)] != nil:
		return s.refuses[fmt.Sprintf("create %T", object)]
	case s.objects[nameOf(object, object.GetName())] != nil:
		return apierrors.NewAlreadyExists(schema.GroupResource{}, object.GetName())
	case len(asked.DryRun) == 0:
		s.put(object)
	}
	return nil
}

func (s *shelf) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	delete(s.objects, nameOf(object, object.GetName()))
	return nil
}

// all are the names of the namespace's objects of a kind.
func all[T client.Object](s *shelf) (found []string) {
	for _, object := range s.objects {
		if _, ok := object.(T); ok {
			found = append(found, object.GetName())
		}
	}
	slices.Sort(found)
	return found
}

// workshop is a namespace with an export of a stopped VM, and the controller.
type workshop struct {
	*shelf
	*Reconciler
	export *exportv1.VirtualMachineExport
	vm     *virtv1.VirtualMachine
}

func newWorkshop(disks ...string) *workshop {
	w := &workshop{shelf: &shelf{objects: map[string]client.Object{}, refuses: map[string]error{}}, export: pass(KindMachine, nil).export}
	w.export.Spec.Source.Name = "web"
	w.vm = fixture.VM("shop", "web", fixture.Strategy(virtv1.RunStrategyHalted))
	w.vm.UID = "web-uid"
	w.put(w.export, w.vm)
	for _, disk := range disks {
		fixture.Claim(disk, disk)(w.vm)
		w.put(bound(disk))
	}
	w.Reconciler = &Reconciler{Client: w.shelf, live: w.shelf, events: events.NewFakeRecorder(100), now: func() time.Time { return began }}
	return w
}

func bound(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	claim.Status.Phase = corev1.ClaimBound
	return claim
}

// pass does the steps of one pass at a time after began, and returns what it knows.
func (w *workshop) pass(t *testing.T, after time.Duration) (*scope, error) {
	t.Helper()
	s := &scope{export: w.export, now: began.Add(after)}
	err := steps.Run(t.Context(), s, w.todo())
	return s, err
}

func (w *workshop) mustPass(t *testing.T, after time.Duration) *scope {
	t.Helper()
	s, err := w.pass(t, after)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatIsRefusedLeavesNothingBehindAgainAndAgain(t *testing.T) {
	for _, refused := range []struct {
		what    string
		secrets int
	}{{"create *v1.Pod", 3}, {"create *v1.Service", 1}} { // token, certificate and definition; the token alone
		w := newWorkshop("root")
		w.refuses[refused.what] = apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("quota exceeded"))
		for range 3 {
			if _, err := w.pass(t, 0); err == nil || !strings.Contains(err.Error(), "quota exceeded") {
				t.Errorf("%s: %v", refused.what, err)
			}
		}
		if secrets := all[*corev1.Secret](w.shelf); len(secrets) != refused.secrets {
			t.Errorf("%s: left are %q", refused.what, secrets)
		}
	}
}

func TestTheNextServerIsKnownByTheSame(t *testing.T) {
	w := newWorkshop("root")
	first := w.mustPass(t, 0)
	for gone := range 3 { // the pod; the Service; what is written on the Service
		service := w.objects["*v1.Service virt-export-e"]
		switch gone {
		case 0:
			delete(w.objects, "*v1.Pod virt-export-e")
		case 1:
			delete(w.objects, "*v1.Service virt-export-e")
		case 2:
			service.SetAnnotations(nil)
		}
		again := w.mustPass(t, 0)
		if first.known.Authority == "" || again.known != first.known || identityOf(again.pod) != first.known {
			t.Errorf("%d: known by %+v, and then by %+v", gone, first.known, again.known)
		}
		if written := identityOf(w.objects["*v1.Service virt-export-e"]); written != first.known {
			t.Errorf("%d: the Service says %+v", gone, written)
		}
	}
	if secrets := all[*corev1.Secret](w.shelf); len(secrets) != 3 {
		t.Errorf("there are %q", secrets)
	}
}

func TestAServerOfOtherVolumesEnds(t *testing.T) {
	w := newWorkshop("root")
	w.mustPass(t, 0)
	if s := w.mustPass(t, 0); s.pod.DeletionTimestamp != nil {
		t.Error("nothing changed, and the server ends")
	}
	fixture.Claim("data", "data")(w.vm)
	w.put(bound("data"))
	if s := w.mustPass(t, 0); s.pod.DeletionTimestamp == nil || s.phase() != exportv1.Pending {
		t.Error("the VM has one disk more, and the server without it stays")
	}
	if s := w.mustPass(t, 0); !slices.ContainsFunc(s.pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "data"
	}) {
		t.Error("the next server has it neither")
	}
}

func TestAServerThatFailedIsSeenBeforeItIsMadeAnew(t *testing.T) {
	w := newWorkshop("root")
	pod := w.mustPass(t, 0).pod
	pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "the node is full"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, LastTransitionTime: metav1.NewTime(began)}}
	s := w.mustPass(t, 9*time.Second)
	if ready := s.readyCondition(); s.pod.DeletionTimestamp != nil || !strings.HasSuffix(ready.Message, "Evicted the node is full") || s.next().RequeueAfter > retry {
		t.Errorf("after 9 s: %+v, and again in %s", ready, s.next().RequeueAfter)
	}
	if s := w.mustPass(t, 11*time.Second); s.pod.DeletionTimestamp == nil {
		t.Error("it is there after 11 s")
	}
}

func TestAFailureWritesNoStatus(t *testing.T) {
	w := newWorkshop("root")
	w.mustPass(t, 0)
	w.refuses["get *v1.PersistentVolumeClaim"] = errors.New("the API server is away")
	if _, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.export)}); err == nil {
		t.Error("the failure is forgotten")
	}
}

func TestWhatAFormerExportHasLeftIsWaitedFor(t *testing.T) {
	former := pass(KindMachine, nil).export
	former.UID = "former"
	for what, object := range map[string]client.Object{
		"pod":     &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "virt-export-e", OwnerReferences: []metav1.OwnerReference{owner(former)}}},
		"Service": &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "virt-export-e", OwnerReferences: []metav1.OwnerReference{owner(former)}}},
	} {
		w := newWorkshop("root")
		w.put(object)
		if _, err := w.pass(t, 0); err == nil || !strings.Contains(err.Error(), "waiting until "+what+" virt-export-e is gone") {
			t.Errorf("the former's: %v", err)
		}
		object.SetOwnerReferences(nil)
		if _, err := w.pass(t, 0); err == nil || !strings.Contains(err.Error(), "is not the export's; delete it") {
			t.Errorf("another's: %v", err)
		}
	}
}

func TestTheStateOfAVMIsExportedAndNoFormerOne(t *testing.T) {
	w := newWorkshop("root")
	w.vm.Name = strings.Repeat("w", 70)
	w.export.Spec.Source.Name = w.vm.Name
	w.put(w.vm)
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"state":   func(*corev1.PersistentVolumeClaim) {},
		"goes":    func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = new(metav1.NewTime(began)) },
		"root":    func(*corev1.PersistentVolumeClaim) {}, // which the VM has as a disk, too
		"of-none": func(c *corev1.PersistentVolumeClaim) { c.Labels[names.LabelState] = w.vm.Name },
		"former": func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", Name: w.vm.Name, UID: "former", Controller: new(true)}}
		},
	} {
		claim := bound(name)
		claim.Labels = map[string]string{names.LabelState: strings.Repeat("w", 63)}
		change(claim)
		w.put(claim)
	}
	var got []string
	for _, volume := range w.mustPass(t, 0).volumes {
		got = append(got, volume.Name)
	}
	if !slices.Equal(got, []string{"root", "state"}) {
		t.Errorf("got %q", got)
	}
}

func TestAClaimThatASnapshotHasTwiceIsExportedOnce(t *testing.T) {
	w := newWorkshop()
	w.export.Spec.Source.Kind, w.export.Spec.Source.Name = KindSnapshot, "before"
	ready := true
	snapshot := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "before"}}
	snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{ReadyToUse: &ready, VirtualMachineSnapshotContentName: new("content")}
	content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "content"}}
	content.Status = &snapshotv1.VirtualMachineSnapshotContentStatus{ReadyToUse: &ready}
	for _, volume := range []string{"one", "two"} {
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, snapshotv1.VolumeBackup{
			VolumeName: volume, PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "root"}},
		})
	}
	w.put(snapshot, content)
	s := &scope{export: w.export, now: began}
	if err := w.findVolumes(t.Context(), s); err != nil || len(s.volumes) != 1 || len(s.backups) != 1 {
		t.Errorf("%v: %+v, %+v", err, s.lack, s.volumes)
	}
}

// What a VM keeps beside its disks is files in folders, also when it comes out of a snapshot.
func TestTheStateInASnapshotIsNoDisk(t *testing.T) {
	w := newWorkshop("root")
	w.export.Spec.Source.Kind, w.export.Spec.Source.Name = KindSnapshot, "before"
	ready := true
	snapshot := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "before"}}
	snapshot.Status = &snapshotv1.VirtualMachineSnapshotStatus{ReadyToUse: &ready, VirtualMachineSnapshotContentName: new("content")}
	content := &snapshotv1.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "content"}}
	content.Status = &snapshotv1.VirtualMachineSnapshotContentStatus{ReadyToUse: &ready}
	content.Spec.Source.VirtualMachine = &snapshotv1.VirtualMachine{ObjectMeta: w.vm.ObjectMeta, Spec: w.vm.Spec}
	content.Spec.VolumeBackups = []snapshotv1.VolumeBackup{
		{VolumeName: w.vm.Spec.Template.Spec.Volumes[0].Name, PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "root"}}},
		{VolumeName: "persistent-state-for-web", PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "state", Labels: map[string]string{names.LabelState: "web"}},
		}},
	}
	w.put(snapshot, content)
	s := &scope{export: w.export, now: began}
	if err := w.findVolumes(t.Context(), s); err != nil || len(s.volumes) != 2 {
		t.Fatalf("%v: %+v, %+v", err, s.lack, s.volumes)
	}
	if root, state := s.volumes[0], s.volumes[1]; !root.Disk || state.Disk || state.Block || state.Name != "state" {
		t.Errorf("got %+v", s.volumes)
	}
	if claim := buildClaim(w.export, s.backups[1], nil); claim.Labels[names.LabelState] != "" {
		t.Error("the export's claim would be taken for the state of the VM")
	}
}

// A claim that is bound may be filled still.
func TestAClaimThatIsFilledIsWaitedFor(t *testing.T) {
	claim := bound("root")
	claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("cdi.kubevirt.io"), Kind: "VolumeImportSource", Name: "s"}
	if populated(claim) {
		t.Error("it is exported")
	}
}

func TestAPodRequestsTheExportsOfItsClaims(t *testing.T) {
	w := newWorkshop("root")
	w.mustPass(t, 0)
	waiting := w.export.DeepCopy()
	waiting.Name = "waiting"
	ofClaim := w.export.DeepCopy()
	ofClaim.Name, ofClaim.Spec.Source.Kind, ofClaim.Spec.Source.Name = "of-claim", KindClaim, "data"
	w.put(waiting, ofClaim)
	for claim, want := range map[string]string{"root": "e waiting", "data": "of-claim waiting", "another": "waiting"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
		pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		var got []string
		for _, request := range w.ofPod(t.Context(), pod) {
			got = append(got, request.Name)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %s", claim, got, want)
		}
	}
	if server := w.objects["*v1.Pod "+vmexport.ServerName("e")].(*corev1.Pod); len(w.ofPod(t.Context(), server)) > 0 {
		t.Error("a server keeps exports waiting")
	}
}
