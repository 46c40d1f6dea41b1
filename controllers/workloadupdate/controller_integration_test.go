//go:build integration

package workloadupdate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestPasses makes single passes against a real API server, with no controller beside.
func TestPasses(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"kubevirt.io_kubevirts", "kubevirt.io_virtualmachines", "kubevirt.io_virtualmachineinstances")
	c, err := client.New(apiserver.Start(t, kinds...), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Client: c, t: t, clock: time.Now(), recorder: events.NewFakeRecorder(100)}
	w.r = &Reconciler{Client: c, events: w.recorder, now: func() time.Time { return w.clock }}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w.must(c.Create(t.Context(), namespace))
	w.ns = namespace.Name
	w.kv = &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "kubevirt"}}
	w.kv.Spec.WorkloadUpdateStrategy.BatchEvictionSize = new(2)
	w.must(c.Create(t.Context(), w.kv))
	w.kv.Status = virtv1.KubeVirtStatus{Phase: virtv1.KubeVirtPhaseDeployed, ObservedDeploymentID: "1", TargetDeploymentID: "1"}
	w.must(c.Status().Update(t.Context(), w.kv))
	vms := []*virtv1.VirtualMachine{w.machine("a", true), w.machine("b", true), w.machine("c", true), w.machine("new", false)}
	w.instance("alone", nil, true)

	if result := w.pass(); result != (ctrl.Result{}) || w.restarts(vms...) != 0 {
		t.Fatalf("nobody asked, and %d are restarted; %+v", w.restarts(vms...), result)
	}
	w.kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods = []virtv1.WorkloadUpdateMethod{virtv1.WorkloadUpdateMethodEvict}
	w.must(c.Update(t.Context(), w.kv))
	if result := w.pass(); result.RequeueAfter != time.Minute || w.restarts(vms...) != 2 {
		t.Fatalf("a batch of two: %d are restarted; %+v", w.restarts(vms...), result)
	}
	if told := w.told(); told != "SuccessfulEvict SuccessfulEvict" {
		t.Errorf("told %q", told)
	}
	w.clock = w.clock.Add(30 * time.Second)
	if result := w.pass(); result.RequeueAfter != 30*time.Second || w.restarts(vms...) != 2 {
		t.Errorf("before the interval is over: %d are restarted; %+v", w.restarts(vms...), result)
	}
	w.clock = w.clock.Add(time.Minute)
	if w.pass(); w.restarts(vms...) != 2 {
		t.Errorf("while none of the batch is back: %d are restarted", w.restarts(vms...))
	}
	w.back(vms)
	if w.pass(); w.restarts(vms...) != 1 || w.restarts(vms[3]) != 0 {
		t.Errorf("the next batch: %d are restarted", w.restarts(vms...))
	}
	w.back(vms)
	w.told()
	w.clock = w.clock.Add(time.Hour)
	if w.pass(); w.restarts(vms...) != 0 || w.told() != "" {
		t.Error("when only an instance of nobody is left, it is not let alone, or others are not")
	}
	alone := &virtv1.VirtualMachineInstance{}
	w.must(c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "alone"}, alone))
	if alone.DeletionTimestamp != nil {
		t.Error("an instance that nobody starts again is shut down")
	}
}

// world is a cluster with a KubeVirt object.
type world struct {
	client.Client
	t        *testing.T
	ns       string
	kv       *virtv1.KubeVirt
	r        *Reconciler
	recorder *events.FakeRecorder
	clock    time.Time
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pass() ctrl.Result {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.kv)})
	w.must(err)
	return result
}

// machine makes a VM with its running instance.
func (w *world) machine(name string, outdated bool) *virtv1.VirtualMachine {
	w.t.Helper()
	vm := fixture.VM(w.ns, name, fixture.ContainerDisk("x/y:z"))
	w.must(w.Create(w.t.Context(), vm))
	w.instance(name, vm, outdated)
	return vm
}

func (w *world) instance(name string, vm *virtv1.VirtualMachine, outdated bool) {
	w.t.Helper()
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	if vm != nil {
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)}
	}
	if outdated {
		vmi.Labels = map[string]string{virtv1.OutdatedLauncherImageLabel: "true"}
	}
	vmi.Status.Phase = virtv1.Running
	w.must(w.Create(w.t.Context(), vmi))
}

// restarts counts the VMs whose status asks for a restart of the instance that they have.
func (w *world) restarts(vms ...*virtv1.VirtualMachine) int {
	w.t.Helper()
	n := 0
	for _, vm := range vms {
		vmi := &virtv1.VirtualMachineInstance{}
		w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(vm), vm))
		w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(vm), vmi))
		asked := vm.Status.StateChangeRequests
		if len(asked) == 2 && asked[0].Action == virtv1.StopRequest && *asked[0].UID == vmi.UID && asked[1].Action == virtv1.StartRequest {
			n++
		}
	}
	return n
}

// back is what the VM controller does with restarts: another instance with the new launcher.
func (w *world) back(vms []*virtv1.VirtualMachine) {
	w.t.Helper()
	for _, vm := range vms {
		if w.restarts(vm) == 0 {
			continue
		}
		w.must(w.Delete(w.t.Context(), &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: vm.Name}}))
		w.instance(vm.Name, vm, false)
		vm.Status.StateChangeRequests = nil
		w.must(w.Status().Update(w.t.Context(), vm))
	}
}

// told returns the reasons of the events since it was asked last.
func (w *world) told() string {
	var reasons []string
	for {
		select {
		case event := <-w.recorder.Events:
			reasons = append(reasons, strings.Fields(event)[1])
		default:
			return strings.Join(reasons, " ")
		}
	}
}
