//go:build integration

package virtualmachine

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/rename"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	killed "github.com/slipway-vm/slipway/tests/fixture/breaking"
)

// keeper is a namespace with VM web, whose volumes are kept, and the claim of its state.
type keeper struct {
	client.WithWatch
	t         *testing.T
	namespace string
	web       *virtv1.VirtualMachine
}

// Wherever the controller is killed, the volumes outlive the VM, and another one gets them.
func TestVolumesOutliveTheirVM(t *testing.T) {
	kinds := apiserver.Only(t, "../hyperconverged/components/crds",
		"kubevirt.io_virtualmachines", "kubevirt.io_virtualmachineinstances", "cdi.kubevirt.io_datavolumes", "kubevirt.io_kubevirts")
	config := apiserver.Start(t, kinds...)
	config.QPS = -1
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			b := &killed.Writes{N: n, After: after}
			t.Run(b.String(), func(t *testing.T) { outlive(t, c, b) })
			if !b.Broken {
				break
			}
		}
	}

	t.Run("and the VM whose rename is taken back", func(t *testing.T) { leaveNoRecord(t, c) })
}

// A VM that was to take the place of another one never had its disks.
func leaveNoRecord(t *testing.T, c client.WithWatch) {
	k := newKeeper(t, c)
	shop := fixture.VM(k.namespace, "shop", fixture.Strategy(virtv1.RunStrategyHalted))
	shop.Annotations = map[string]string{keep.AnnotationVolumes: "true", rename.AnnotationOrigin: rename.Origin{Name: "web", UID: k.web.UID}.String()}
	shop.Finalizers = []string{virtv1.VirtualMachineControllerFinalizer}
	k.must(c.Create(t.Context(), shop))
	k.must(c.Delete(t.Context(), shop))
	r := &Reconciler{Client: c, live: c, resolver: instancetype.Resolver{Reader: c}, copies: progress.New(nil), events: events.NewFakeRecorder(100), now: time.Now}
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(shop)})
	k.must(err)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(shop), shop); !apierrors.IsNotFound(err) {
		t.Errorf("the VM is still there: %v", err)
	}
	records := &appsv1.ControllerRevisionList{}
	k.must(c.List(t.Context(), records, client.InNamespace(k.namespace)))
	if len(records.Items) > 0 {
		t.Errorf("it left %+v", records.Items)
	}
}

func newKeeper(t *testing.T, c client.WithWatch) *keeper {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	k := &keeper{WithWatch: c, t: t}
	k.must(c.Create(t.Context(), namespace))
	k.namespace = namespace.Name
	k.web = fixture.VM(k.namespace, "web", fixture.Strategy(virtv1.RunStrategyHalted), fixture.Template("data", fixture.DataVolume(k.namespace, "data", "1Gi")))
	k.web.Annotations = map[string]string{keep.AnnotationVolumes: "true"}
	k.web.Finalizers = []string{virtv1.VirtualMachineControllerFinalizer}
	k.must(c.Create(t.Context(), k.web))
	k.claim("state", k.web, map[string]string{names.LabelState: "web"})
	return k
}

// claim makes a claim of a VM.
func (k *keeper) claim(name string, of *virtv1.VirtualMachine, labels map[string]string) {
	k.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: k.namespace, Name: name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(of, virtv1.VirtualMachineGroupVersionKind)},
	}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}
	k.must(k.Create(k.t.Context(), claim))
}

func (k *keeper) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// pass makes passes with a client that may break, and then two with one that does not.
func (k *keeper) pass(b *killed.Writes) {
	k.t.Helper()
	for _, c := range []client.Client{b.Client(k.WithWatch), k.WithWatch, k.WithWatch} {
		r := &Reconciler{Client: c, live: k.WithWatch, resolver: instancetype.Resolver{Reader: k.WithWatch}, copies: progress.New(nil), events: events.NewFakeRecorder(100), now: time.Now}
		_, err := r.Reconcile(k.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: k.namespace, Name: "web"}})
		if c == client.Client(k.WithWatch) {
			k.must(err)
		}
	}
}

// keptFor makes sure that both volumes belong to nobody, and are kept for vm.
func (k *keeper) keptFor(vm *virtv1.VirtualMachine) {
	k.t.Helper()
	dv, state := &cdiv1.DataVolume{}, &corev1.PersistentVolumeClaim{}
	k.must(k.Get(k.t.Context(), client.ObjectKey{Namespace: k.namespace, Name: "data"}, dv))
	k.must(k.Get(k.t.Context(), client.ObjectKey{Namespace: k.namespace, Name: "state"}, state))
	for _, volume := range []client.Object{dv, state} {
		if len(volume.GetOwnerReferences()) > 0 || volume.GetLabels()[keep.LabelFor] != string(vm.UID) || volume.GetDeletionTimestamp() != nil {
			k.t.Errorf("%s is %v of %+v, want %s", volume.GetName(), volume.GetLabels(), volume.GetOwnerReferences(), vm.UID)
		}
	}
	if dv.Labels[virtv1.CreatedByLabel] != string(vm.UID) || state.Labels[names.LabelState] != "web" {
		k.t.Errorf("the labels are %v and %v", dv.Labels, state.Labels)
	}
}

func outlive(t *testing.T, c client.WithWatch, b *killed.Writes) {
	k := newKeeper(t, c)
	k.pass(b)
	k.keptFor(k.web)
	k.must(c.Delete(t.Context(), k.web))
	k.pass(b)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(k.web), &virtv1.VirtualMachine{}); !apierrors.IsNotFound(err) {
		t.Errorf("the VM is still there: %v", err)
	}
	k.keptFor(k.web)
	records := &appsv1.ControllerRevisionList{}
	k.must(c.List(t.Context(), records, client.InNamespace(k.namespace), client.MatchingLabels{keep.LabelRecord: "true"}))
	if len(records.Items) != 1 {
		t.Fatalf("the records are %+v", records.Items)
	}
	other := fixture.VM(k.namespace, "other")
	other.UID = "other-uid"
	k.claim("others", other, map[string]string{keep.LabelFor: string(k.web.UID)})
	again, err := keep.Again(&records.Items[0])
	k.must(err)
	k.must(c.Create(t.Context(), again))
	k.pass(b)
	k.must(c.Get(t.Context(), client.ObjectKeyFromObject(again), again))
	k.keptFor(again)
	if _, noted := again.Annotations[keep.AnnotationRecord]; noted || again.Spec.Template.Spec.Domain.Firmware.UUID != FirmwareUUID(k.web.UID) {
		t.Errorf("the VM is %+v", again)
	}
	others := &corev1.PersistentVolumeClaim{}
	k.must(c.Get(t.Context(), client.ObjectKey{Namespace: k.namespace, Name: "others"}, others))
	if others.Labels[keep.LabelFor] != string(k.web.UID) {
		t.Errorf("another VM's claim was taken: %v", others.Labels)
	}
	k.must(c.List(t.Context(), records, client.InNamespace(k.namespace), client.MatchingLabels{keep.LabelRecord: "true"}))
	if len(records.Items) > 0 {
		t.Errorf("the records stay: %+v", records.Items)
	}
}
