//go:build integration

package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/internal/guestid"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/rename"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestARename makes single passes against a real API server. The test is the garbage collector.
func TestARename(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"kubevirt.io_virtualmachines", "kubevirt.io_virtualmachineinstances", "cdi.kubevirt.io_datavolumes", "kubevirt.io_kubevirts")
	config := apiserver.Start(t, kinds...)
	config.QPS = -1 // it asks for much, one after the other
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, client.WithWatch){
		"that nothing disturbs":                  undisturbedRename,
		"that is broken off at any write":        brokenRename,
		"to a name that a VM got meanwhile":      takenName,
		"to a name whose state somebody has":     takenState,
		"of a VM that was started meanwhile":     startedMeanwhile,
		"is taken back with the new VM":          takenBack,
		"goes on when the old VM is deleted":     deletedMeanwhile,
		"that was ended by hand deletes nothing": endedByHand,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// shop is a namespace with VM web, which has run, and what belongs to it.
type shop struct {
	client.WithWatch
	t         *testing.T
	namespace string
	web       *virtv1.VirtualMachine
	recorder  *events.FakeRecorder
	// disk and kept are the uids of its DataVolume and of the claim of its state.
	disk, kept types.UID
}

func newShop(t *testing.T, c client.WithWatch) *shop {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	s := &shop{WithWatch: c, t: t, recorder: events.NewFakeRecorder(1000)}
	s.must(c.Create(t.Context(), namespace))
	s.namespace = namespace.Name
	s.web = fixture.VM(s.namespace, "web", fixture.Strategy(virtv1.RunStrategyRerunOnFailure), fixture.Template("data", fixture.DataVolume(s.namespace, "data", "1Gi")))
	s.web.Labels = map[string]string{"team": "a"}
	s.web.Finalizers = []string{virtv1.VirtualMachineControllerFinalizer}
	s.must(c.Create(t.Context(), s.web))
	s.web.Status.RunStrategy = virtv1.RunStrategyRerunOnFailure // it has run
	s.must(c.Status().Update(t.Context(), s.web, client.FieldOwner(names.ManagerController)))
	s.must(s.pass(c, "web"))
	state := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: "persistent-state-for-web-x", Labels: map[string]string{names.LabelState: "web"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.web, virtv1.VirtualMachineGroupVersionKind)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}},
		},
	}
	s.must(c.Create(t.Context(), state))
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: revisionName(s.web), OwnerReferences: state.OwnerReferences,
	}, Data: runtime.RawExtension{Raw: []byte("{}")}}
	s.must(c.Create(t.Context(), revision))
	disk := s.dataVolume()
	disk.Status.Phase = cdiv1.Succeeded
	s.must(c.Status().Update(t.Context(), disk))
	s.disk, s.kept = disk.UID, state.UID
	return s
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// ask records the rename as virt-api does.
func (s *shop) ask() {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"store"}}}`, rename.AnnotationTarget)
	s.must(s.Patch(s.t.Context(), s.web, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// pass makes one pass over a VM, with a client that may break.
func (s *shop) pass(c client.Client, name string) error {
	r := &Reconciler{Client: c, live: s.WithWatch, resolver: instancetype.Resolver{Reader: s.WithWatch}, copies: progress.New(nil), events: s.recorder, now: time.Now}
	_, err := r.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: s.namespace, Name: name}})
	return err
}

// vm is the VM of the name; nil when there is none.
func (s *shop) vm(name string) *virtv1.VirtualMachine {
	s.t.Helper()
	vm := &virtv1.VirtualMachine{}
	err := s.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, vm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.must(err)
	return vm
}

func (s *shop) dataVolume() *cdiv1.DataVolume {
	s.t.Helper()
	dv := &cdiv1.DataVolume{}
	s.must(s.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "data"}, dv))
	return dv
}

// settle makes passes as the controller does until nothing is left to do.
func (s *shop) settle() {
	s.t.Helper()
	for range 6 {
		for _, name := range []string{"store", "web"} {
			if err := s.pass(s.WithWatch, name); err != nil && !strings.Contains(err.Error(), "is not being renamed any more") {
				s.t.Fatal(err)
			}
			s.collect(name)
		}
	}
}

// collect is the garbage collector for a VM that is deleted as an orphaning parent.
func (s *shop) collect(name string) {
	s.t.Helper()
	vm := s.vm(name)
	if vm == nil || vm.DeletionTimestamp == nil || !slices.Contains(vm.Finalizers, metav1.FinalizerOrphanDependents) {
		return
	}
	for _, object := range s.dependents() {
		owners := slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()), func(owner metav1.OwnerReference) bool { return owner.UID == vm.UID })
		object.SetOwnerReferences(owners)
		s.must(s.Update(s.t.Context(), object))
	}
	vm.Finalizers = slices.DeleteFunc(vm.Finalizers, func(finalizer string) bool { return finalizer == metav1.FinalizerOrphanDependents })
	s.must(s.Update(s.t.Context(), vm))
}

// dependents are the DataVolume, the claim of the state, and the revision.
func (s *shop) dependents() []client.Object {
	s.t.Helper()
	claims, revisions := &corev1.PersistentVolumeClaimList{}, &appsv1.ControllerRevisionList{}
	s.must(s.List(s.t.Context(), claims, client.InNamespace(s.namespace)))
	s.must(s.List(s.t.Context(), revisions, client.InNamespace(s.namespace)))
	found := []client.Object{s.dataVolume()}
	for i := range claims.Items {
		found = append(found, &claims.Items[i])
	}
	for i := range revisions.Items {
		found = append(found, &revisions.Items[i])
	}
	return found
}

// belongsTo makes sure that all that web had is vm's alone, and is what it was.
func (s *shop) belongsTo(vm *virtv1.VirtualMachine) {
	s.t.Helper()
	all := s.dependents()
	if len(all) != 3 || all[0].GetUID() != s.disk || all[1].GetUID() != s.kept {
		s.t.Fatalf("the dependents are %v, want the three that there were", all)
	}
	for _, object := range all {
		if !metav1.IsControlledBy(object, vm) || len(object.GetOwnerReferences()) != 1 || object.GetDeletionTimestamp() != nil {
			s.t.Errorf("%T %s has the owners %+v, want %s alone", object, object.GetName(), object.GetOwnerReferences(), vm.Name)
		}
	}
	if got := all[0].GetLabels()[virtv1.CreatedByLabel]; got != string(vm.UID) {
		s.t.Errorf("the DataVolume was made by %s", got)
	}
	if got := all[1].GetLabels()[names.LabelState]; got != vm.Name {
		s.t.Errorf("the claim has the state of %s", got)
	}
}

// isRenamed makes sure that VM store has web's place.
func (s *shop) isRenamed() {
	s.t.Helper()
	if old := s.vm("web"); old != nil {
		s.t.Fatalf("the old VM is there: %+v", old.ObjectMeta)
	}
	vm := s.vm("store")
	if vm == nil {
		s.t.Fatal("the new VM is not there")
	}
	s.belongsTo(vm)
	template := vm.Spec.Template
	was := firmwareOf(nil, s.web).UUID
	if got := template.Spec.Domain.Firmware.UUID; got != was {
		s.t.Errorf("the firmware's UUID is %s, was %s", got, was)
	}
	if got := template.Spec.Domain.Devices.Interfaces[0].MacAddress; got != guestid.MAC(s.namespace, "web", "default").String() {
		s.t.Errorf("the address is %s", got)
	}
	if _, arriving := rename.OriginOf(vm); arriving || vm.Labels["team"] != "a" || vm.Annotations[rename.AnnotationTarget] != "" {
		s.t.Errorf("the new VM is %+v", vm.ObjectMeta)
	}
	if vm.Status.RunStrategy != virtv1.RunStrategyRerunOnFailure || vm.Status.PrintableStatus != virtv1.VirtualMachineStatusStopped || s.condition(vm) != nil {
		s.t.Errorf("its status is %+v", vm.Status)
	}
	s.nothingRuns()
}

func (s *shop) nothingRuns() {
	s.t.Helper()
	list := &virtv1.VirtualMachineInstanceList{}
	s.must(s.List(s.t.Context(), list, client.InNamespace(s.namespace)))
	if len(list.Items) > 0 {
		s.t.Errorf("something was started: %+v", list.Items[0].ObjectMeta)
	}
}

func (s *shop) condition(vm *virtv1.VirtualMachine) *virtv1.VirtualMachineCondition {
	for i := range vm.Status.Conditions {
		if vm.Status.Conditions[i].Type == rename.Condition {
			return &vm.Status.Conditions[i]
		}
	}
	return nil
}

// failed makes sure that web is as it was, and says why it was not renamed.
func (s *shop) failed(why string) {
	s.t.Helper()
	old := s.vm("web")
	s.belongsTo(old)
	if c := s.condition(old); c == nil || c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, why) {
		s.t.Errorf("the condition is %+v, want %q", c, why)
	}
	if target, said := rename.Failure(old); rename.Target(old) != "" || target != "store" || !strings.Contains(said, why) {
		s.t.Errorf("its annotations are %v", old.Annotations)
	}
	close(s.recorder.Events)
	told := false
	for event := range s.recorder.Events {
		told = told || strings.HasPrefix(event, "Warning RenameFailed") && strings.Contains(event, why)
	}
	if !told {
		s.t.Error("no event tells of it")
	}
}

func undisturbedRename(t *testing.T, c client.WithWatch) {
	s := newShop(t, c)
	s.ask()
	s.must(s.pass(c, "web"))
	if condition := s.condition(s.vm("store")); condition == nil || condition.Status != corev1.ConditionTrue {
		t.Errorf("the new VM does not say what it waits for: %+v", condition)
	}
	s.must(s.pass(c, "store"))
	if _, arriving := rename.OriginOf(s.vm("store")); !arriving {
		t.Error("the new VM is on its own before the old one is gone")
	}
	s.settle()
	s.isRenamed()
}

// errBroken is what a controller that is killed would not live to see.
var errBroken = errors.New("killed")

// breaking is a client that breaks at its nth write, before or after that is done, and does nothing any more.
type breaking struct {
	n      int
	after  bool
	broken bool
}

func (b *breaking) write(do func() error) error {
	b.n--
	switch {
	case b.n > 0:
		return do()
	case b.n == 0 && b.after:
		_ = do()
	}
	b.broken = true
	return errBroken
}

func (b *breaking) client(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return b.write(func() error { return c.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return b.write(func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return b.write(func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, name string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return b.write(func() error { return c.SubResource(name).Apply(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return b.write(func() error { return c.SubResource(name).Patch(ctx, obj, patch, opts...) })
		},
	})
}

// Wherever the controller is killed, the next one ends what it began.
func brokenRename(t *testing.T, c client.WithWatch) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			b := &breaking{n: n, after: after}
			name := fmt.Sprintf("before write %d", n)
			if after {
				name = fmt.Sprintf("after write %d", n)
			}
			t.Run(name, func(t *testing.T) {
				s := newShop(t, c)
				s.ask()
				weak := b.client(c)
				for range 3 {
					for _, vm := range []string{"web", "store"} {
						if !b.broken {
							_ = s.pass(weak, vm)
							s.collect(vm)
						}
					}
				}
				for _, object := range s.dependents() {
					if !slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return s.vm(owner.Name) != nil }) {
						t.Errorf("%T %s is left to the garbage collector: %+v", object, object.GetName(), object.GetOwnerReferences())
					}
				}
				s.nothingRuns()
				s.settle()
				s.isRenamed()
			})
			if !b.broken {
				break
			}
		}
	}
}

func takenName(t *testing.T, c client.WithWatch) {
	s := newShop(t, c)
	s.ask()
	other := fixture.VM(s.namespace, "store", fixture.Strategy(virtv1.RunStrategyHalted))
	s.must(c.Create(t.Context(), other))
	s.settle()
	s.failed("VirtualMachine store exists")
	if now := s.vm("store"); now.UID != other.UID || now.DeletionTimestamp != nil {
		t.Error("the other VM was touched")
	}
}

func takenState(t *testing.T, c client.WithWatch) {
	s := newShop(t, c)
	s.ask()
	brought := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "brought", Labels: map[string]string{names.LabelState: "store"}}}
	brought.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	brought.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}
	s.must(c.Create(t.Context(), brought))
	s.settle()
	if s.vm("store") != nil {
		t.Error("the new VM was made")
	}
	s.must(c.Delete(t.Context(), brought))
	brought.Finalizers = nil
	s.must(client.IgnoreNotFound(c.Patch(t.Context(), brought, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
	s.failed("PersistentVolumeClaim brought, which is nobody's, has the state of a VM of that name")
}

func startedMeanwhile(t *testing.T, c client.WithWatch) {
	s := newShop(t, c)
	s.ask()
	s.must(c.Create(t.Context(), &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: "web", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.web, virtv1.VirtualMachineGroupVersionKind)},
	}}))
	s.must(s.pass(c, "web"))
	if s.vm("store") != nil {
		t.Error("the new VM was made")
	}
	s.failed("renaming a running VM is not allowed")
}

// takenBack breaks the rename off where all is the new VM's but the place.
func takenBack(t *testing.T, c client.WithWatch) {
	s := newShop(t, c)
	s.ask()
	b := &breaking{n: 6}
	_ = s.pass(b.client(c), "web")
	next := s.vm("store")
	if next == nil || !metav1.IsControlledBy(s.dataVolume(), next) || s.vm("web").DeletionTimestamp != nil {
		t.Fatalf("the rename stands elsewhere: %+v", next)
	}
	s.must(c.Delete(t.Context(), next))
	s.must(s.pass(c, "store"))
	if s.vm("store") == nil {
		t.Fatal("the new VM went before the old one had its disks back")
	}
	s.settle()
	if s.vm("store") != nil {
		t.Error("the new VM is still there")
	}
	s.failed("VirtualMachine store was deleted before it was done")
	s.nothingRuns()
}

// deletedMeanwhile deletes the old VM when the new one is there and has nothing yet.
func deletedMeanwhile(t *testing.T, c client.WithWatch) {
	s := newShop(t, c)
	s.ask()
	b := &breaking{n: 2}
	_ = s.pass(b.client(c), "web")
	if s.vm("store") == nil || !metav1.IsControlledBy(s.dataVolume(), s.web) {
		t.Fatal("the rename stands elsewhere")
	}
	s.must(c.Delete(t.Context(), s.web))
	s.settle()
	for _, object := range s.dependents() { // the garbage collector
		object.SetOwnerReferences(slices.DeleteFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == s.web.UID }))
		s.must(c.Update(t.Context(), object))
	}
	s.isRenamed()
}

func endedByHand(t *testing.T, c client.WithWatch) {
	s := newShop(t, c)
	s.ask()
	b := &breaking{n: 6}
	_ = s.pass(b.client(c), "web")
	s.must(c.Patch(t.Context(), s.web, client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, rename.AnnotationTarget)))))
	s.settle()
	next := s.vm("store")
	if _, arriving := rename.OriginOf(next); !arriving || s.vm("web").DeletionTimestamp != nil {
		t.Errorf("the new VM is %+v", next.ObjectMeta)
	}
	if !slices.ContainsFunc(next.Status.Conditions, func(c virtv1.VirtualMachineCondition) bool {
		return c.Type == virtv1.VirtualMachineFailure && strings.Contains(c.Message, "VirtualMachine web is not being renamed any more; delete this one")
	}) {
		t.Errorf("it says %+v", next.Status.Conditions)
	}
	s.nothingRuns()
}
