//go:build integration

package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// TestAPass makes single passes against a real API server, with no controller beside.
func TestAPass(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"pool.kubevirt.io", "kubevirt.io_virtualmachines", "kubevirt.io_virtualmachineinstances", "cdi.kubevirt.io_datavolumes")
	config := apiserver.Start(t, kinds...)
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	restricted := apiserver.As(t, config, "virt-controller", "../hyperconverged/components/virt-controller/rbac.yaml", &poolv1.VirtualMachinePoolList{})
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := &world{Client: c, restricted: restricted, t: t, recorder: events.NewFakeRecorder(100)}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
			w.must(c.Create(t.Context(), namespace))
			w.pool = newPool(updating, func(spec *poolv1.VirtualMachinePoolSpec) {
				spec.VirtualMachineTemplate.Spec = fixture.VM("", "", fixture.ContainerDisk("x/y:z")).Spec
			})
			w.pool.ObjectMeta = metav1.ObjectMeta{Namespace: namespace.Name, Name: "web"}
			w.must(c.Create(t.Context(), w.pool))
			test(t, w)
		})
	}
}

// world is a namespace with a pool.
type world struct {
	client.Client
	// restricted has the rights that virt-controller has.
	restricted client.Client
	t          *testing.T
	pool       *poolv1.VirtualMachinePool
	recorder   *events.FakeRecorder
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// tryPass makes one pass over the pool with a cache that may lag behind.
func (w *world) tryPass(cache *lagging.Client) (ctrl.Result, error) {
	w.t.Helper()
	cache.Client = w.restricted
	r := &Reconciler{Client: cache, live: w.restricted, events: w.recorder, now: time.Now}
	return r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.pool)})
}

func (w *world) pass(cache *lagging.Client) ctrl.Result {
	w.t.Helper()
	result, err := w.tryPass(cache)
	w.must(err)
	return result
}

// machines are those of the namespace by name, without those that are going.
func (w *world) machines() []virtv1.VirtualMachine {
	w.t.Helper()
	list := &virtv1.VirtualMachineList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.pool.Namespace)))
	return slices.DeleteFunc(list.Items, func(vm virtv1.VirtualMachine) bool { return vm.DeletionTimestamp != nil })
}

// wantMachines checks the names of those that stay, and returns them.
func (w *world) wantMachines(want ...string) []virtv1.VirtualMachine {
	w.t.Helper()
	found := w.machines()
	var names []string
	for i := range found {
		names = append(names, found[i].Name)
	}
	if !slices.Equal(names, want) {
		w.t.Fatalf("there are %v, want %v", names, want)
	}
	return found
}

// collect is the garbage collector, which lets go what waited for its dependents.
func (w *world) collect() {
	w.t.Helper()
	list := &virtv1.VirtualMachineList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.pool.Namespace)))
	for i := range list.Items {
		if vm := &list.Items[i]; vm.DeletionTimestamp != nil {
			vm.Finalizers = nil
			w.must(w.Update(w.t.Context(), vm))
		}
	}
}

func objects(machines []virtv1.VirtualMachine) []client.Object {
	var all []client.Object
	for i := range machines {
		all = append(all, machines[i].DeepCopy())
	}
	return all
}

// read reads the pool.
func (w *world) read() {
	w.t.Helper()
	w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(w.pool), w.pool))
}

// wantStatus checks the pool's status, as short words.
func (w *world) wantStatus(want string) {
	w.t.Helper()
	w.read()
	text := fmt.Sprintf("%d/%d %s", w.pool.Status.ReadyReplicas, w.pool.Status.Replicas, w.pool.Status.LabelSelector)
	for _, c := range w.pool.Status.Conditions {
		text += fmt.Sprintf(" %s=%s:%s", c.Type, c.Status, c.Reason)
	}
	if text != want {
		w.t.Errorf("the status is %q, want %q", text, want)
	}
}

// change changes the pool's spec.
func (w *world) change(change func(*poolv1.VirtualMachinePoolSpec)) {
	w.t.Helper()
	w.read()
	change(&w.pool.Spec)
	w.must(w.Update(w.t.Context(), w.pool))
}

// wantTold checks the events since the last time, by reason.
func (w *world) wantTold(want string) {
	w.t.Helper()
	var reasons []string
	for {
		select {
		case event := <-w.recorder.Events:
			reasons = append(reasons, strings.Fields(event)[1])
			continue
		default:
		}
		break
	}
	if got := strings.Join(reasons, " "); got != want {
		w.t.Errorf("events %q, want %q", got, want)
	}
}
