//go:build integration

package pool

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// cases are what single passes are tested for, by what they meet.
var cases = map[string]func(*testing.T, *world){
	"a new pool":                             fillsUp,
	"a scale by the subresource":             scales,
	"a name that is another's":               leavesNames,
	"disks that are kept":                    keptDisks,
	"disks that are going":                   waitsForDisks,
	"disks of a VM that its user deletes":    keepsDeleted,
	"a pool that holds its VMs and goes":     letsGo,
	"a VM that does not start":               heals,
	"a pool that is paused":                  pauses,
	"a VM with other labels":                 releases,
	"a new template":                         updates,
	"a guest that runs an old template":      restarts,
	"a template with other disks":            replaces,
	"VMs that the cache lacks":               unseenMachines,
	"a pool that went and came again":        unseenSuccessor,
	"a VM that changed since it was read":    unseenChange,
	"a namespace that is being deleted":      endingNamespace,
	"a template that the selector passes by": makesNoneInVain,
}

func fillsUp(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.wantMachines("web-0", "web-1", "web-2")
	w.wantStatus("0/3 app=web")
	w.wantTold("SuccessfulCreate SuccessfulCreate SuccessfulCreate")
	if !metav1.IsControlledBy(&made[0], w.pool) || made[0].Labels[virtv1.VirtualMachinePoolRevisionName] != "web-1" {
		t.Errorf("made %+v", made[0].ObjectMeta)
	}
	revision := &appsv1.ControllerRevision{}
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.pool.Namespace, Name: "web-1"}, revision))
	if !metav1.IsControlledBy(revision, w.pool) || !strings.Contains(string(revision.Data.Raw), "virtualMachineTemplate") {
		t.Errorf("the revision is %+v", revision)
	}
	made[0].Status.Ready = true
	w.must(w.Status().Update(t.Context(), &made[0]))
	w.pass(&lagging.Client{})
	w.wantStatus("1/3 app=web")
	before := w.pool.ResourceVersion
	w.pass(&lagging.Client{})
	w.read()
	w.wantTold("")
	if w.pool.ResourceVersion != before {
		t.Error("a pass in which nothing happens writes")
	}
}

func scales(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	w.wantTold("SuccessfulCreate SuccessfulCreate SuccessfulCreate")
	scale := func(n int32) {
		t.Helper()
		scale := &autoscalingv1.Scale{}
		w.must(w.SubResource("scale").Get(t.Context(), w.pool, scale))
		scale.Spec.Replicas = n
		w.must(w.SubResource("scale").Update(t.Context(), w.pool, client.WithSubResourceBody(scale)))
		w.pass(&lagging.Client{})
	}
	w.change(going("AscendingOrder"))
	scale(1)
	w.wantMachines("web-2")
	w.wantStatus("0/3 app=web")
	w.wantTold("SuccessfulDelete SuccessfulDelete")
	scale(2)
	w.wantMachines("web-2") // the others are still there
	w.collect()
	w.pass(&lagging.Client{})
	w.wantMachines("web-0", "web-2")
	w.wantStatus("0/2 app=web")
}

func leavesNames(t *testing.T, w *world) {
	other := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.pool.Namespace, Name: "web-1"}, Spec: w.pool.Spec.VirtualMachineTemplate.Spec}
	w.must(w.Create(t.Context(), other))
	w.pass(&lagging.Client{})
	made := w.wantMachines("web-0", "web-1", "web-2", "web-3")
	if metav1.GetControllerOf(&made[1]) != nil {
		t.Error("another's VM was taken on")
	}
	w.wantStatus("0/3 app=web")
}

func keptDisks(t *testing.T, w *world) {
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) {
		spec.VirtualMachineTemplate.Spec = template("root").Spec
		going("DescendingOrder")(spec)
		spec.ScaleInStrategy.Proactive.StatePreservation = new(poolv1.StatePreservationOffline)
	})
	w.pass(&lagging.Client{})
	for _, vm := range w.wantMachines("web-0", "web-1", "web-2") {
		w.must(w.Create(t.Context(), &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: vm.Spec.DataVolumeTemplates[0].Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&vm, virtv1.VirtualMachineGroupVersionKind)},
		}}))
		w.must(w.Create(t.Context(), ownClaim(&vm, vm.Spec.DataVolumeTemplates[0].Name)))
	}
	w.change(replicas(2))
	w.pass(&lagging.Client{})
	w.wantMachines("web-0", "web-1")
	for name, owners := range map[string]int{"root-1": 1, "root-2": 0} {
		dv := &cdiv1.DataVolume{}
		w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.pool.Namespace, Name: name}, dv))
		if len(dv.OwnerReferences) != owners {
			t.Errorf("the owners of %s are %v", name, dv.OwnerReferences)
		}
		claim := &corev1.PersistentVolumeClaim{}
		w.must(w.Get(t.Context(), client.ObjectKey{Namespace: w.pool.Namespace, Name: name}, claim))
		if len(claim.OwnerReferences) != owners {
			t.Errorf("the owners of claim %s are %v", name, claim.OwnerReferences)
		}
	}
}

// keepsDeleted shows that a VM which its user deletes goes once its disks are nobody's, and that one with other disks is replaced with them.
func keepsDeleted(t *testing.T, w *world) {
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) {
		spec.VirtualMachineTemplate.Spec = template("root").Spec
		leaving(spec)
	})
	w.pass(&lagging.Client{})
	made := w.wantMachines("web-0", "web-1", "web-2")
	if len(made[0].Finalizers) > 0 {
		t.Errorf("a VM whose disks go with it is held: %v", made[0].Finalizers)
	}
	w.change(preserving)
	w.pass(&lagging.Client{})
	w.read()
	made = w.wantMachines("web-0", "web-1", "web-2")
	if !slices.Contains(w.pool.Finalizers, finalizer) || !slices.Contains(made[1].Finalizers, finalizer) {
		t.Errorf("held by %v, and the pool by %v", made[1].Finalizers, w.pool.Finalizers)
	}
	before := w.pool.ResourceVersion
	w.pass(&lagging.Client{})
	w.read()
	if w.pool.ResourceVersion != before {
		t.Error("a pass in which nothing happens writes")
	}
	disk := func(vm *virtv1.VirtualMachine, phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
		t.Helper()
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: vm.Spec.DataVolumeTemplates[0].Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)},
		}}
		w.must(w.Create(t.Context(), dv))
		dv.Status.Phase = phase
		w.must(w.Status().Update(t.Context(), dv))
		return dv
	}
	broken, kept, lost := disk(&made[0], cdiv1.Failed), disk(&made[1], cdiv1.Succeeded), disk(&made[2], cdiv1.Succeeded)
	w.must(w.Delete(t.Context(), &made[0]))
	w.must(w.Delete(t.Context(), &made[1]))
	w.pass(&lagging.Client{})
	w.wantMachines("web-2")
	for dv, owners := range map[*cdiv1.DataVolume]int{broken: 1, kept: 0, lost: 1} {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
		if len(dv.OwnerReferences) != owners {
			t.Errorf("the owners of %s are %v, want %d", dv.Name, dv.OwnerReferences, owners)
		}
	}
	w.pass(&lagging.Client{})
	again := w.wantMachines("web-1", "web-2") // web-0 waits for the end of its old disk
	if !slices.Contains(again[0].Finalizers, finalizer) {
		t.Errorf("the new one is held by %v", again[0].Finalizers)
	}
	w.must(w.Delete(t.Context(), broken))
	w.pass(&lagging.Client{})
	made = w.wantMachines("web-0", "web-1", "web-2")
	for i := range made { // they are halted by hand, so that none is missed
		made[i].Spec.RunStrategy = new(virtv1.RunStrategyHalted)
		w.must(w.Update(t.Context(), &made[i]))
	}
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) {
		spec.VirtualMachineTemplate.Spec.DataVolumeTemplates[0].Annotations = map[string]string{"a": "b"}
	})
	w.pass(&lagging.Client{})
	w.wantMachines()
	w.pass(&lagging.Client{})
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(lost), lost))
	if len(lost.OwnerReferences) != 1 {
		t.Errorf("the disk of a VM that is replaced is kept: %v", lost.OwnerReferences)
	}
}

// letsGo shows that no VM is held by a pool that is gone, whether it goes with its VMs or leaves them.
func letsGo(t *testing.T, w *world) {
	w.change(preserving)
	w.pass(&lagging.Client{})
	made := w.wantMachines("web-0", "web-1", "web-2")
	made[1].Labels["app"] = "study"
	w.must(w.Update(t.Context(), &made[1])) // its pool has not seen it
	made[2].OwnerReferences = nil
	w.must(w.Update(t.Context(), &made[2]))
	w.must(w.Delete(t.Context(), w.pool))
	w.pass(&lagging.Client{})
	for _, vm := range w.wantMachines("web-0", "web-1", "web-2") {
		if len(vm.Finalizers) > 0 {
			t.Errorf("%s is held: %v", vm.Name, vm.Finalizers)
		}
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(w.pool), w.pool); !apierrors.IsNotFound(err) {
		t.Errorf("the pool is held: %v, %v", w.pool.Finalizers, err)
	}
	w.pass(&lagging.Client{})
}

// heals shows that a VM which fails to start is made anew, when it is due.
func heals(t *testing.T, w *world) {
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) {
		spec.Autohealing = &poolv1.VirtualMachinePoolAutohealingStrategy{StartUpFailureThreshold: new(uint32(2))}
	})
	w.pass(&lagging.Client{})
	w.wantTold("SuccessfulCreate SuccessfulCreate SuccessfulCreate")
	vm := &w.wantMachines("web-0", "web-1", "web-2")[1]
	fails := func(count int) {
		t.Helper()
		vm.Status.PrintableStatus = virtv1.VirtualMachineStatusCrashLoopBackOff
		vm.Status.StartFailure = &virtv1.VirtualMachineStartFailure{ConsecutiveFailCount: count, RetryAfterTimestamp: &metav1.Time{Time: time.Now()}}
		w.must(w.Status().Update(t.Context(), vm))
	}
	fails(1)
	if result := w.pass(&lagging.Client{}); result.RequeueAfter <= 0 || result.RequeueAfter > defaultFailingFor {
		t.Errorf("it is looked at again after %s", result.RequeueAfter)
	}
	w.wantTold("")
	fails(2)
	w.pass(&lagging.Client{})
	w.wantTold("Autohealing SuccessfulDelete")
	w.wantMachines("web-0", "web-2")
	w.collect()
	w.pass(&lagging.Client{})
	again := w.wantMachines("web-0", "web-1", "web-2")
	if again[1].UID == vm.UID {
		t.Error("it is not made anew")
	}
}

// ownClaim is the claim of a VM's disk, whose DataVolume has gone after its success.
func ownClaim(vm *virtv1.VirtualMachine, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// A VM that somebody deleted leaves its disks to the garbage collector; the next of its name waits for that.
func waitsForDisks(t *testing.T, w *world) {
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) { spec.VirtualMachineTemplate.Spec = template("root").Spec })
	w.pass(&lagging.Client{})
	vm := &w.wantMachines("web-0", "web-1", "web-2")[1]
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{
		Namespace: vm.Namespace, Name: "root-1",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)},
	}}
	w.must(w.Create(t.Context(), dv))
	claim := ownClaim(vm, "root-2")
	other := &w.wantMachines("web-0", "web-1", "web-2")[2]
	claim.OwnerReferences[0].Name, claim.OwnerReferences[0].UID = other.Name, other.UID
	w.must(w.Create(t.Context(), claim))
	w.must(w.Delete(t.Context(), other))
	w.must(w.Delete(t.Context(), vm))
	w.pass(&lagging.Client{})
	w.wantMachines("web-0")
	for _, disk := range []client.Object{dv, claim} {
		if got := poolFor(t.Context(), disk); len(got) != 1 || got[0].Name != "web" {
			t.Errorf("the end of the disk %T wakes %v", disk, got)
		}
	}
	w.must(w.Delete(t.Context(), dv))
	w.pass(&lagging.Client{})
	w.wantMachines("web-0", "web-1")
	w.must(w.Delete(t.Context(), claim))
	w.must(client.IgnoreNotFound(w.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))) // storage's protection
	w.pass(&lagging.Client{})
	w.wantMachines("web-0", "web-1", "web-2")
}

func pauses(_ *testing.T, w *world) {
	w.change(paused)
	w.pass(&lagging.Client{})
	w.wantMachines()
	w.wantStatus("0/0 app=web ReplicaPaused=True:SuccessfulPaused")
	w.wantTold("SuccessfulPaused")
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) { spec.Paused = false })
	w.pass(&lagging.Client{})
	w.wantStatus("0/3 app=web")
	w.wantTold("SuccessfulCreate SuccessfulCreate SuccessfulCreate SuccessfulResume")
}

func releases(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.wantMachines("web-0", "web-1", "web-2")
	made[1].Labels["app"] = "study"
	w.must(w.Update(t.Context(), &made[1]))
	w.pass(&lagging.Client{})
	left := w.wantMachines("web-0", "web-1", "web-2", "web-3")
	if metav1.GetControllerOf(&left[1]) != nil {
		t.Errorf("it was not let go: %+v", left[1].ObjectMeta)
	}
	w.wantStatus("0/3 app=web")
}

func updates(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	w.wantTold("SuccessfulCreate SuccessfulCreate SuccessfulCreate")
	w.change(replicas(2)) // another generation, the same template
	w.pass(&lagging.Client{})
	w.wantTold("SuccessfulDelete")
	w.collect()
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) {
		spec.VirtualMachineTemplate.Spec.Template.Spec.Hostname = "h"
	})
	w.pass(&lagging.Client{})
	w.wantTold("SuccessfulUpdate SuccessfulUpdate")
	for _, vm := range w.machines() {
		if vm.Spec.Template.Spec.Hostname != "h" || vm.Labels[virtv1.VirtualMachinePoolRevisionName] != "web-3" {
			t.Errorf("%s is %+v", vm.Name, vm.Spec.Template.Spec)
		}
	}
	w.pass(&lagging.Client{})
	w.wantTold("")
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) {
		spec.VirtualMachineTemplate.Spec.Template.Spec.Hostname = "i"
	})
	w.pass(&lagging.Client{})
	revisions := &appsv1.ControllerRevisionList{}
	w.must(w.List(t.Context(), revisions, client.InNamespace(w.pool.Namespace)))
	var names []string
	for _, r := range revisions.Items {
		names = append(names, r.Name)
	}
	if got := strings.Join(names, " "); got != "web-3 web-4" {
		t.Errorf("the revisions are %s", got)
	}
}

// restarts shows one guest at a time being restarted.
func restarts(t *testing.T, w *world) {
	w.change(atMost(intstr.FromInt32(1)))
	w.pass(&lagging.Client{})
	for _, vm := range w.wantMachines("web-0", "web-1", "web-2") {
		vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: vm.Name, Labels: with(vm.Spec.Template.ObjectMeta.Labels, virtv1.VirtualMachinePoolRevisionName, "another"),
		}, Spec: vm.Spec.Template.Spec}
		vmi.Status.Phase = virtv1.Running
		vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
		w.must(w.Create(t.Context(), vmi))
	}
	w.wantTold("SuccessfulCreate SuccessfulCreate SuccessfulCreate")
	before := w.machines()
	w.pass(&lagging.Client{})
	w.wantTold("SuccessfulUpdate")
	asked := w.machines()
	if requests := asked[0].Status.StateChangeRequests; len(requests) != 2 || requests[0].Action != virtv1.StopRequest || requests[0].UID == nil || requests[1].Action != virtv1.StartRequest {
		t.Errorf("it was asked for %+v", requests)
	}
	w.pass(&lagging.Client{})
	w.pass(&lagging.Client{Past: objects(before)})
	w.wantTold("")
}

func replaces(t *testing.T, w *world) {
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) {
		spec.VirtualMachineTemplate.Spec = template("root").Spec
		atMost(intstr.FromInt32(1))(spec)
	})
	w.pass(&lagging.Client{})
	made := w.wantMachines("web-0", "web-1", "web-2")
	for i := range made { // they are halted by hand, so that none is missed
		made[i].Spec.RunStrategy = new(virtv1.RunStrategyHalted)
		w.must(w.Update(t.Context(), &made[i]))
	}
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) {
		spec.VirtualMachineTemplate.Spec.DataVolumeTemplates[0].Annotations = map[string]string{"a": "b"}
	})
	w.pass(&lagging.Client{})
	w.wantMachines("web-1", "web-2")
	w.collect()
	w.pass(&lagging.Client{})
	again := w.wantMachines("web-0", "web-1", "web-2")
	if again[0].UID == made[0].UID || again[0].Spec.DataVolumeTemplates[0].Annotations["a"] != "b" {
		t.Errorf("it is not made anew: %+v", again[0].Spec.DataVolumeTemplates)
	}
	w.pass(&lagging.Client{}) // the new one does not run yet
	w.wantMachines("web-0", "web-1", "web-2")
}

func makesNoneInVain(t *testing.T, w *world) {
	w.change(func(spec *poolv1.VirtualMachinePoolSpec) { spec.Selector.MatchLabels["app"] = "shop" })
	if _, err := w.tryPass(&lagging.Client{}); err == nil || !strings.Contains(err.Error(), "selector does not match labels") {
		t.Errorf("the pass says %v", err)
	}
	w.wantMachines()
	w.wantStatus("0/0 app=shop ReplicaFailure=True:FailedScaleOut")
}
