//go:build integration

package virtualmachine

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// TestAPass makes single passes against a real API server, with no controller beside.
func TestAPass(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"kubevirt.io_virtualmachines", "kubevirt.io_virtualmachineinstances", "kubevirt.io_kubevirts", "cdi.kubevirt.io", "instancetype.kubevirt.io")
	c, err := client.New(apiserver.Start(t, kinds...), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *world){
		"a namespace that is being deleted":          endingNamespace,
		"a deleted VM whose VMI the cache lacks":     unseenInstance,
		"a deleted VM that leaves its VMI running":   orphanedInstance,
		"a VMI that is left by a deletion unseen":    freedInstance,
		"a VM that went since it was read":           goneVM,
		"a VMI of the VM's own that the cache lacks": ownInstance,
		"a VMI that an earlier VM left":              leftInstance,
		"a stop of a VMI that the cache lacks":       unseenStop,
		"a request that came since the VM was read":  unseenRequest,
		"changes of a VM that runs":                  followedChanges,
		"a change of who has its revision":           revisionsOwners,
		"an instance type that changes and goes":     keptType,
		"a revision that is nobody's":                foreignRevision,
		"an instance type that is written out":       expandedType,
		"one that is written out of what runs":       expandedWhileItRuns,
		"an instance type that a disk names":         inferredType,
		"a start that fails again and again":         toldOnce,
		"a storage class that is preferred":          preferredClass,
		"a dump of the guest's memory":               memoryDumped,
		"a dump of the guest's memory that fails":    memoryDumpFailed,
		"a halted VM whose disk is filled":           haltedWhileFilled,
		"a halted VM that could not be started":      haltedUnstartable,
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{Client: c, t: t, recorder: events.NewFakeRecorder(100)}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
			w.must(c.Create(t.Context(), namespace))
			w.vm = fixture.VM(namespace.Name, "vm", fixture.ContainerDisk("x/y:z"), fixture.Template("data", fixture.DataVolume(namespace.Name, "data", "1Gi")))
			w.vm.Finalizers = []string{virtv1.VirtualMachineControllerFinalizer}
			w.must(c.Create(t.Context(), w.vm))
			test(t, w)
		})
	}
}

// world is a namespace with a VM.
type world struct {
	client.Client
	t        *testing.T
	vm       *virtv1.VirtualMachine
	recorder *events.FakeRecorder
	// clock is the time of passes; the machine's when it is left out.
	clock time.Time
}

func (w *world) now() time.Time {
	if w.clock.IsZero() {
		return time.Now()
	}
	return w.clock
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pass makes one pass over the VM with a cache that may lag behind.
func (w *world) pass(cache *lagging.Client) ctrl.Result {
	w.t.Helper()
	cache.Client = w.Client
	r := &Reconciler{Client: cache, live: w.Client, resolver: instancetype.Resolver{Reader: w.Client}, copies: progress.New(nil), events: w.recorder, now: w.now}
	result, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.vm)})
	w.must(err)
	return result
}

// vmi is the VM's instance; its uid is empty when there is none.
func (w *world) vmi() *virtv1.VirtualMachineInstance {
	w.t.Helper()
	vmi := &virtv1.VirtualMachineInstance{}
	w.must(client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKeyFromObject(w.vm), vmi)))
	return vmi
}

// The end of a namespace is no failure of the VMs in it: no event, no error, no retry.
func endingNamespace(t *testing.T, w *world) {
	w.must(w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.vm.Namespace}}))
	for range 3 {
		if result := w.pass(&lagging.Client{}); result != (ctrl.Result{}) {
			t.Errorf("another pass follows: %+v", result)
		}
	}
	close(w.recorder.Events)
	for event := range w.recorder.Events {
		t.Errorf("event %s", event)
	}
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	for _, c := range w.vm.Status.Conditions {
		if c.Type == virtv1.VirtualMachineFailure {
			t.Errorf("the VM has condition %+v", c)
		}
	}
	w.must(w.Delete(t.Context(), w.vm))
	w.pass(&lagging.Client{})
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted VM stays: %v", err)
	}
}

// A VM is not let go while an instance of it runs, though the cache does not show that one yet.
func unseenInstance(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	vmi := w.vmi()
	if vmi.UID == "" {
		t.Fatal("the VM was not started")
	}
	w.must(w.Delete(t.Context(), w.vm))
	w.pass(&lagging.Client{Unseen: []client.Object{vmi}})
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	if vmi = w.vmi(); vmi.DeletionTimestamp == nil {
		t.Error("the instance was not stopped")
	}
	vmi.Finalizers = nil
	w.must(w.Update(t.Context(), vmi))
	w.pass(&lagging.Client{})
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm); !apierrors.IsNotFound(err) {
		t.Errorf("the VM stays after its instance: %v", err)
	}
}

// An instance that its VM leaves running goes on, though the cache still has it as the VM's while it knows already that the garbage
// collector is done.
func orphanedInstance(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	past := w.vmi()
	w.must(w.Delete(t.Context(), w.vm, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	free := past.DeepCopy()
	free.OwnerReferences = nil
	w.must(w.Update(t.Context(), free))
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	w.vm.Finalizers = slices.DeleteFunc(w.vm.Finalizers, func(finalizer string) bool { return finalizer == metav1.FinalizerOrphanDependents })
	w.must(w.Update(t.Context(), w.vm))
	w.pass(&lagging.Client{Past: []client.Object{past}})
	if vmi := w.vmi(); vmi.UID != past.UID || vmi.DeletionTimestamp != nil {
		t.Errorf("the instance that was to be left running is %q, being deleted since %v", vmi.UID, vmi.DeletionTimestamp)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted VM stays: %v", err)
	}
}

// Nor is such an instance taken back by a pass that sees it free, and not yet that its VM is being deleted.
func freedInstance(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	vmi := w.vmi()
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	past := w.vm.DeepCopy()
	w.must(w.Delete(t.Context(), w.vm, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	vmi.OwnerReferences = nil
	w.must(w.Update(t.Context(), vmi))
	if result := w.pass(&lagging.Client{Past: []client.Object{past}}); result == (ctrl.Result{}) {
		t.Error("no other pass follows")
	}
	if owners := w.vmi().OwnerReferences; len(owners) > 0 {
		t.Errorf("the instance belongs to %+v", owners)
	}
}

// A VM that is gone is not written to, and that it is gone is no error.
func goneVM(t *testing.T, w *world) {
	w.must(w.Delete(t.Context(), w.vm))
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	past := w.vm.DeepCopy()
	past.Finalizers = []string{"example.com/another"} // the last that kept it
	w.vm.Finalizers = nil
	w.must(w.Update(t.Context(), w.vm))
	w.pass(&lagging.Client{Past: []client.Object{past}})
}

// What the last pass has made is neither made again nor told twice.
func ownInstance(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	vmi, dv := w.vmi(), &cdiv1.DataVolume{}
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.vm.Namespace, Name: "data"}, dv))
	w.pass(&lagging.Client{Unseen: []client.Object{vmi, dv}})
	if again := w.vmi(); again.UID != vmi.UID {
		t.Errorf("the instance is another: %s, %s", again.UID, vmi.UID)
	}
	close(w.recorder.Events)
	var told []string
	for event := range w.recorder.Events {
		told = append(told, event)
	}
	if len(told) != 2 {
		t.Errorf("events\n%s\nwant one for the DataVolume and one for the instance", strings.Join(told, "\n"))
	}
}

// The guest of a VM that was deleted without it is the next VM's of that name, also when the cache does not show it at first; one
// that nobody made for a VM is left alone.
func leftInstance(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	vmi := w.vmi()
	vmi.OwnerReferences = nil
	w.must(w.Update(t.Context(), vmi))
	if result := w.pass(&lagging.Client{Unseen: []client.Object{vmi}}); result.RequeueAfter == 0 {
		t.Error("no other pass follows")
	}
	w.pass(&lagging.Client{})
	again := w.vmi()
	if again.UID != vmi.UID || !metav1.IsControlledBy(again, w.vm) {
		t.Errorf("the instance is %+v", again.ObjectMeta)
	}
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	if !w.vm.Status.Created {
		t.Errorf("the VM says %+v", w.vm.Status)
	}

	again.OwnerReferences = nil
	delete(again.Annotations, AnnotationTemplate)
	w.must(w.Update(t.Context(), again))
	r := &Reconciler{Client: w.Client, live: w.Client, resolver: instancetype.Resolver{Reader: w.Client}, copies: progress.New(nil), events: w.recorder, now: time.Now}
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.vm)})
	if err == nil || !strings.Contains(err.Error(), "is not this VirtualMachine's") || metav1.IsControlledBy(w.vmi(), w.vm) {
		t.Errorf("another's instance was taken over: %v", err)
	}
}

// request is virt-api: it adds a request to a status that has none.
func (w *world) request(t *testing.T, request virtv1.VirtualMachineStateChangeRequest) {
	t.Helper()
	vm := &virtv1.VirtualMachine{}
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), vm))
	vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{request}
	w.must(w.Status().Update(t.Context(), vm, client.FieldOwner(names.ManagerAPI)))
}

// A VMI is stopped by a request that names it, though the cache does not show it yet.
func unseenStop(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	vmi := w.vmi()
	w.request(t, virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StopRequest, UID: &vmi.UID})
	w.pass(&lagging.Client{Unseen: []client.Object{vmi}})
	if vmi = w.vmi(); vmi.DeletionTimestamp == nil {
		t.Error("the instance was not stopped")
	}
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	if len(w.vm.Status.StateChangeRequests) != 1 {
		t.Errorf("the requests are %+v while the instance is being stopped", w.vm.Status.StateChangeRequests)
	}
}

// What somebody requests while a pass goes on is not lost by what the pass writes.
func unseenRequest(t *testing.T, w *world) {
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	w.vm.Spec.RunStrategy = new(virtv1.RunStrategyManual)
	w.must(w.Update(t.Context(), w.vm))
	w.request(t, virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StartRequest})
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	past := w.vm.DeepCopy()
	w.pass(&lagging.Client{})
	vmi := w.vmi()
	if vmi.UID == "" {
		t.Fatal("the VM was not started")
	}
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	if len(w.vm.Status.StateChangeRequests) != 0 {
		t.Fatalf("the requests are %+v after the start", w.vm.Status.StateChangeRequests)
	}
	w.request(t, virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StopRequest, UID: &vmi.UID})
	if result := w.pass(&lagging.Client{Past: []client.Object{past}}); !result.Requeue { //nolint:staticcheck // it is what the pass returns
		t.Errorf("a pass over what was read too early is not repeated: %+v", result)
	}
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vm), w.vm))
	if requests := w.vm.Status.StateChangeRequests; len(requests) != 1 || requests[0].Action != virtv1.StopRequest {
		t.Errorf("the requests are %+v, want the stop", requests)
	}
}
