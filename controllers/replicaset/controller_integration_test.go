//go:build integration

package replicaset

import (
	"fmt"
	"maps"
	"slices"
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
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// TestAPass makes single passes against a real API server, with no controller beside.
func TestAPass(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"kubevirt.io_virtualmachineinstancereplicasets", "kubevirt.io_virtualmachineinstances")
	config := apiserver.Start(t, kinds...)
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	restricted := apiserver.As(t, config, "virt-controller", "../hyperconverged/components/virt-controller/rbac.yaml", &virtv1.VirtualMachineInstanceReplicaSetList{})
	for name, test := range cases() {
		t.Run(name, func(t *testing.T) {
			w := &world{Client: c, restricted: restricted, t: t, recorder: events.NewFakeRecorder(100)}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
			w.must(c.Create(t.Context(), namespace))
			w.set = &virtv1.VirtualMachineInstanceReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "web"},
				Spec: virtv1.VirtualMachineInstanceReplicaSetSpec{
					Replicas: new(int32(3)),
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
					Template: fixture.VM(namespace.Name, "web", fixture.ContainerDisk("x/y:z")).Spec.Template,
				},
			}
			w.set.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web"}
			w.must(c.Create(t.Context(), w.set))
			test(t, w)
		})
	}
}

// cases are what single passes are tested for, by what they meet.
func cases() map[string]func(*testing.T, *world) {
	all := maps.Clone(ordinary)
	maps.Copy(all, awkward)
	return all
}

// world is a namespace with a replica set.
type world struct {
	client.Client
	// restricted has the rights that virt-controller has.
	restricted client.Client
	t          *testing.T
	set        *virtv1.VirtualMachineInstanceReplicaSet
	recorder   *events.FakeRecorder
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// tryPass makes one pass over the set with a cache that may lag behind.
func (w *world) tryPass(cache *lagging.Client) (ctrl.Result, error) {
	w.t.Helper()
	cache.Client = w.restricted
	r := &Reconciler{Client: cache, live: w.restricted, events: w.recorder, now: time.Now}
	return r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.set)})
}

func (w *world) pass(cache *lagging.Client) ctrl.Result {
	w.t.Helper()
	result, err := w.tryPass(cache)
	w.must(err)
	return result
}

// instances are those of the namespace, the oldest first, without those that are going.
func (w *world) instances() []virtv1.VirtualMachineInstance {
	w.t.Helper()
	list := &virtv1.VirtualMachineInstanceList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.set.Namespace)))
	slices.SortFunc(list.Items, func(a, b virtv1.VirtualMachineInstance) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return slices.DeleteFunc(list.Items, func(vmi virtv1.VirtualMachineInstance) bool { return vmi.DeletionTimestamp != nil })
}

func objects(instances []virtv1.VirtualMachineInstance) []client.Object {
	var all []client.Object
	for i := range instances {
		all = append(all, instances[i].DeepCopy())
	}
	return all
}

func (w *world) count(want int, words string) []virtv1.VirtualMachineInstance {
	w.t.Helper()
	found := w.instances()
	if len(found) != want {
		w.t.Fatalf("%s: %d instances, want %d", words, len(found), want)
	}
	return found
}

// status is the set's, as short words.
func (w *world) status() string {
	w.t.Helper()
	w.must(w.Get(w.t.Context(), client.ObjectKeyFromObject(w.set), w.set))
	text := fmt.Sprintf("%d/%d %s", w.set.Status.ReadyReplicas, w.set.Status.Replicas, w.set.Status.LabelSelector)
	for _, c := range w.set.Status.Conditions {
		text += fmt.Sprintf(" %s=%s:%s", c.Type, c.Status, c.Reason)
	}
	return text
}

func (w *world) wantStatus(want string) {
	w.t.Helper()
	if got := w.status(); got != want {
		w.t.Errorf("the status is %q, want %q", got, want)
	}
}

// change changes the set's spec.
func (w *world) change(change func(*virtv1.VirtualMachineInstanceReplicaSetSpec)) {
	w.t.Helper()
	w.status()
	change(&w.set.Spec)
	w.must(w.Update(w.t.Context(), w.set))
}

// report is virt-handler.
func (w *world) report(vmi virtv1.VirtualMachineInstance, phase virtv1.VirtualMachineInstancePhase) {
	w.t.Helper()
	vmi.Status.Phase = phase
	if phase == virtv1.Running {
		vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
	}
	w.must(w.Update(w.t.Context(), &vmi))
}

// told are the events since the last time, by reason.
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

func (w *world) wantTold(want string) {
	w.t.Helper()
	if got := w.told(); got != want {
		w.t.Errorf("events %q, want %q", got, want)
	}
}
