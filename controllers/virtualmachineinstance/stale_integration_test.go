//go:build integration

package virtualmachineinstance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// TestAPass makes single passes against a real API server, with no controller beside.
func TestAPass(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"kubevirt.io_virtualmachineinstances", "kubevirt.io_virtualmachines", "kubevirt.io_kubevirts")
	c, err := client.New(apiserver.Start(t, kinds...), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	whatever := map[string]func(*testing.T, *world){ // the VMI's age
		"a running VMI whose pod the cache lacks":  unseenPodOfARunningVMI,
		"a new VMI whose pod the cache lacks":      unseenPodOfANewVMI,
		"a deleted VMI whose pods the cache lacks": unseenPodsOfADeletedVMI,
	}
	for name, test := range whatever {
		t.Run("after the controller's start, "+name, func(t *testing.T) {
			w := newWorld(t, c)
			w.began = time.Now().Add(-time.Minute)
			test(t, w)
		})
	}
	for name, test := range map[string]func(*testing.T, *world){
		"a namespace that is being deleted":       endingNamespace,
		"a VMI whose pod has a former name":       formerPod,
		"a deleted VMI whose pod is on its way":   stoppedPodOfADeletedVMI,
		"a VMI whose state claim the cache lacks": unseenStateClaim,
		"a state claim of an earlier VM":          stateClaimOfAnEarlierVM,
		"a state claim that a user brought":       stateClaimOfAUser,
		"VMIs with sockets to their nodes":        addressesOfGuests,
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, c)) })
	}
}

// world is a namespace with a VMI.
type world struct {
	client.Client
	t        *testing.T
	vmi      *virtv1.VirtualMachineInstance
	recorder *events.FakeRecorder
	// began is when the controller's first pass did; zero for that which comes first.
	began time.Time
}

func newWorld(t *testing.T, c client.Client) *world {
	t.Helper()
	w := &world{Client: c, t: t, recorder: events.NewFakeRecorder(100)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w.must(c.Create(t.Context(), namespace))
	w.vmi = &virtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "vmi", Finalizers: []string{virtv1.VirtualMachineInstanceFinalizer}},
		Spec:       fixture.VM(namespace.Name, "vmi", fixture.ContainerDisk("x/y:z")).Spec.Template.Spec,
	}
	w.must(c.Create(t.Context(), w.vmi))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pass makes one pass over the VMI with a cache that lacks some objects, and reads the VMI again.
func (w *world) pass(unseen ...client.Object) {
	w.t.Helper()
	r := &Reconciler{
		Client: w.cache(unseen...), live: w.Client, events: w.recorder, now: time.Now,
		options: Options{LauncherImage: "launcher", ProvisionerImage: "slipway"},
	}
	if !w.began.IsZero() {
		r.begin.Do(func() { r.began = w.began })
	}
	_, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.vmi)})
	w.must(err)
	w.must(client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKeyFromObject(w.vmi), w.vmi)))
}

// cache is one that lacks some objects.
func (w *world) cache(unseen ...client.Object) client.Client {
	return &lagging.Client{Client: w.Client, Unseen: unseen, Indexes: map[string]client.IndexerFunc{podIndex: controllerOf}}
}

func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list := &corev1.PodList{}
	w.must(w.List(w.t.Context(), list, client.InNamespace(w.vmi.Namespace)))
	return list.Items
}

// bind gives the pod to a node, whose part it is then to let a deleted one go.
func (w *world) bind(p *corev1.Pod) {
	w.t.Helper()
	w.must(w.SubResource("binding").Create(w.t.Context(), p, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "node"},
	}))
}

// The end of a namespace is no failure of the VMIs in it: no event, no error, no condition.
func endingNamespace(t *testing.T, w *world) {
	w.must(w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.vmi.Namespace}}))
	for range 3 {
		w.pass()
	}
	if len(w.vmi.Status.Conditions) > 0 {
		t.Errorf("conditions %+v", w.vmi.Status.Conditions)
	}
	close(w.recorder.Events)
	for event := range w.recorder.Events {
		t.Errorf("event %s", event)
	}
}

// A guest is not given up because the cache does not show its pod, as just after a change of leader.
func unseenPodOfARunningVMI(t *testing.T, w *world) {
	w.pass()
	p := w.pods()[0]
	w.vmi.Status.Phase = virtv1.Running
	w.must(w.Update(t.Context(), w.vmi))
	w.pass(&p)
	if w.vmi.Status.Phase != virtv1.Running {
		t.Errorf("the VMI is %s: %+v", w.vmi.Status.Phase, w.vmi.Status.Conditions)
	}
	w.must(w.Delete(t.Context(), &p, client.GracePeriodSeconds(0)))
	w.pass()
	if w.vmi.Status.Phase != virtv1.Failed || w.vmi.Status.Reason != reasonPodDeleted {
		t.Errorf("without its pod the VMI is %s, %s", w.vmi.Status.Phase, w.vmi.Status.Reason)
	}
}

// A VMI has one launcher pod.
func unseenPodOfANewVMI(t *testing.T, w *world) {
	w.pass()
	p := w.pods()[0]
	w.pass(&p)
	if pods := w.pods(); len(pods) != 1 || pods[0].UID != p.UID {
		t.Errorf("%d pods", len(pods))
	}
}

// Nor does one get a second launcher whose pod, which the cache lacks, has a name that the version before gave it.
func formerPod(t *testing.T, w *world) {
	w.pass()
	p := w.pods()[0]
	former := p.DeepCopy()
	former.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: "virt-launcher-vmi-12345", Labels: p.Labels, OwnerReferences: p.OwnerReferences}
	w.must(w.Create(t.Context(), former))
	w.must(w.Delete(t.Context(), &p, client.GracePeriodSeconds(0)))
	w.pass(former)
	if pods := w.pods(); len(pods) != 1 || pods[0].Name != former.Name {
		t.Errorf("the pods are %+v", pods)
	}
}

// A deleted VMI is let go when nothing runs in its pod any more, which may stay longer: a final
// phase is not enough, nor that the cache shows no other pod.
func stoppedPodOfADeletedVMI(t *testing.T, w *world) {
	w.pass()
	launcher := w.pods()[0]
	w.bind(&launcher)
	second := launcher.DeepCopy()
	second.ObjectMeta = metav1.ObjectMeta{Namespace: launcher.Namespace, Name: "second", Labels: launcher.Labels, OwnerReferences: launcher.OwnerReferences}
	w.must(w.Create(t.Context(), second))
	w.bind(second)
	w.must(w.Delete(t.Context(), w.vmi))
	for _, step := range []struct {
		pod     *corev1.Pod
		phase   corev1.PodPhase
		state   corev1.ContainerState
		present bool
	}{
		{&launcher, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, true},
		{&launcher, corev1.PodFailed, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, true},
		{&launcher, corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}, true},
		{second, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}, false},
	} {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(step.pod), step.pod))
		step.pod.Status = corev1.PodStatus{Phase: step.phase, ContainerStatuses: []corev1.ContainerStatus{{Name: names.ComputeContainer, State: step.state}}}
		w.must(w.Status().Update(t.Context(), step.pod))
		w.pass(second)
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(w.vmi), w.vmi); client.IgnoreNotFound(err) != nil || (err == nil) != step.present {
			t.Fatalf("with pod %s in phase %s, its container %+v: the VMI is there = %v, want %v (%v)", step.pod.Name, step.phase, step.state, err == nil, step.present, err)
		}
	}
	for _, p := range w.pods() {
		if p.DeletionTimestamp == nil {
			t.Errorf("pod %s of a VMI that is gone stays", p.Name)
		}
	}
}

// A VMI is let go after the last of its pods.
func unseenPodsOfADeletedVMI(t *testing.T, w *world) {
	w.pass()
	launcher := w.pods()[0]
	provisioner, err := pod.Provisioner(pod.Input{VMI: w.vmi, LauncherImage: "launcher", ProvisionerImage: "slipway"})
	w.must(err)
	w.must(w.Create(t.Context(), provisioner))
	w.bind(&launcher)
	w.must(w.Delete(t.Context(), w.vmi))
	w.pass(&launcher, provisioner)
	pods := w.pods()
	if len(pods) != 1 || pods[0].UID != launcher.UID || pods[0].DeletionTimestamp == nil {
		t.Errorf("the pods of a deleted VMI are %+v", pods)
	}
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(w.vmi), w.vmi))
	w.must(w.Delete(t.Context(), &launcher, client.GracePeriodSeconds(0)))
	w.pass()
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(w.vmi), w.vmi); !apierrors.IsNotFound(err) {
		t.Errorf("the VMI stays after its pods: %v", err)
	}
}
