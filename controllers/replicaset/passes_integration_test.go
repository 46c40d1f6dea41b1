//go:build integration

package replicaset

import (
	"strings"
	"testing"

	"github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// ordinary is what every set meets.
var ordinary = map[string]func(*testing.T, *world){
	"a new set":                                   fillsUp,
	"a scale by the subresource":                  scales,
	"a set that does not say how many":            hasAScale,
	"instances that ended":                        replaces,
	"a set that is paused":                        pauses,
	"instances of nobody, and of other labels":    adoptsAndReleases,
	"which set an instance of nobody wakes":       wakes,
	"a quota":                                     meetsAQuota,
	"a template that the selector does not match": makesNoneInVain,
}

func fillsUp(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.count(3, "a set of three")
	w.wantStatus("0/3 app=web")
	w.wantTold("SuccessfulCreate SuccessfulCreate SuccessfulCreate")
	for _, vmi := range made {
		if !metav1.IsControlledBy(&vmi, w.set) || !strings.HasPrefix(vmi.Name, "web") || vmi.Labels["app"] != "web" {
			t.Errorf("made %+v", vmi.ObjectMeta)
		}
	}
	w.report(made[0], virtv1.Running)
	before := w.set.ResourceVersion
	w.pass(&lagging.Client{})
	w.wantStatus("1/3 app=web")
	if w.set.ResourceVersion == before {
		t.Error("the set was not written")
	}
	before = w.set.ResourceVersion
	w.pass(&lagging.Client{})
	w.status()
	w.wantTold("")
	if w.set.ResourceVersion != before {
		t.Error("a pass in which nothing happens writes")
	}
}

func scales(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.count(3, "before")
	w.report(made[1], virtv1.Running)
	w.status()
	scale := &autoscalingv1.Scale{}
	w.must(w.SubResource("scale").Get(t.Context(), w.set, scale))
	if scale.Spec.Replicas != 3 || scale.Status.Replicas != 3 || scale.Status.Selector != "app=web" {
		t.Errorf("the scale is %+v", scale)
	}
	scale.Spec.Replicas = 1
	w.must(w.SubResource("scale").Update(t.Context(), w.set, client.WithSubResourceBody(scale)))
	w.told()
	w.pass(&lagging.Client{})
	if left := w.count(1, "scaled to one"); left[0].UID != made[1].UID {
		t.Error("the one that serves is gone")
	}
	w.wantStatus("1/1 app=web")
	w.wantTold("SuccessfulDelete SuccessfulDelete")
}

func hasAScale(t *testing.T, w *world) {
	w.change(func(spec *virtv1.VirtualMachineInstanceReplicaSetSpec) { spec.Replicas = nil })
	scale := &autoscalingv1.Scale{}
	w.must(w.SubResource("scale").Get(t.Context(), w.set, scale))
	if scale.Spec.Replicas != 1 {
		t.Errorf("the scale is %+v", scale)
	}
	w.pass(&lagging.Client{})
	w.count(1, "one is what is meant")
}

func replaces(_ *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.count(3, "before")
	w.report(made[0], virtv1.Failed)
	w.report(made[1], virtv1.Succeeded)
	w.told()
	w.pass(&lagging.Client{})
	for _, vmi := range w.count(3, "after") {
		if vmi.IsFinal() {
			w.t.Errorf("%s ended and stays", vmi.Name)
		}
	}
	w.wantStatus("0/3 app=web")
	w.wantTold("SuccessfulCreate SuccessfulCreate SuccessfulDelete SuccessfulDelete")
}

func pauses(_ *testing.T, w *world) {
	w.change(func(spec *virtv1.VirtualMachineInstanceReplicaSetSpec) { spec.Paused = true })
	w.pass(&lagging.Client{})
	w.count(0, "paused")
	w.wantStatus("0/0 app=web ReplicaPaused=True:Paused")
	w.wantTold("SuccessfulPaused")
	w.change(func(spec *virtv1.VirtualMachineInstanceReplicaSetSpec) { spec.Paused = false })
	w.pass(&lagging.Client{})
	w.wantStatus("0/3 app=web")
	w.wantTold("SuccessfulCreate SuccessfulCreate SuccessfulCreate SuccessfulResumed")
	made := w.count(3, "resumed")
	w.report(made[0], virtv1.Failed)
	w.change(func(spec *virtv1.VirtualMachineInstanceReplicaSetSpec) {
		spec.Paused, spec.Replicas = true, new(int32(9))
	})
	w.pass(&lagging.Client{})
	w.count(3, "paused again")
	w.wantStatus("0/2 app=web ReplicaPaused=True:Paused")
}

func adoptsAndReleases(t *testing.T, w *world) {
	lone := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.set.Namespace, Name: "lone", Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}},
	}, Spec: w.set.Spec.Template.Spec}
	w.must(w.Create(t.Context(), lone))
	w.pass(&lagging.Client{})
	w.count(3, "with the lone one")
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(lone), lone))
	if !metav1.IsControlledBy(lone, w.set) || len(lone.OwnerReferences) != 2 {
		t.Fatalf("its owners are %+v", lone.OwnerReferences)
	}
	w.wantStatus("0/3 app=web")
	lone.Labels["app"] = "study"
	w.must(w.Update(t.Context(), lone))
	w.pass(&lagging.Client{})
	w.count(4, "one was taken out, another is in its place")
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(lone), lone))
	if metav1.GetControllerOf(lone) != nil || len(lone.OwnerReferences) != 1 || lone.DeletionTimestamp != nil {
		t.Errorf("it was not let go: %+v", lone.ObjectMeta)
	}
	w.wantStatus("0/3 app=web")
}

func wakes(t *testing.T, w *world) {
	r := &Reconciler{Client: w.Client}
	lone := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.set.Namespace, Name: "lone", Labels: map[string]string{"app": "web"}}}
	if got := r.setsFor(t.Context(), lone); len(got) != 1 || got[0].Name != "web" {
		t.Errorf("an instance of nobody wakes %v", got)
	}
	lone.Labels["app"] = "shop"
	if got := r.setsFor(t.Context(), lone); len(got) != 0 {
		t.Errorf("one with other labels wakes %v", got)
	}
	lone.Labels["app"] = "web"
	lone.OwnerReferences = []metav1.OwnerReference{ownedBy(w.set)}
	if got := r.setsFor(t.Context(), lone); len(got) != 0 {
		t.Errorf("one that has an owner wakes %v", got)
	}
}

func meetsAQuota(t *testing.T, w *world) {
	const counted, probed = "count/virtualmachineinstances.kubevirt.io", "count/configmaps"
	limit := func(n string) corev1.ResourceList {
		return corev1.ResourceList{counted: resource.MustParse(n), probed: resource.MustParse("0")}
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.set.Namespace, Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: limit("2")}}
	w.must(w.Create(t.Context(), quota))
	quota.Status = corev1.ResourceQuotaStatus{Hard: limit("2"), Used: limit("0")}
	w.must(w.Status().Update(t.Context(), quota)) // the quota controller's work
	gomega.NewWithT(t).Eventually(func() error {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.set.Namespace, Name: "probe"}}
		return w.Create(t.Context(), probe, client.DryRunAll)
	}, "5m", "50ms").Should(gomega.MatchError(gomega.ContainSubstring("exceeded quota")), "the API server knows the quota")
	w.refusedByQuota(1)
	w.count(2, "as many as the quota allows")
	w.wantStatus("0/2 app=web ReplicaFailure=True:FailedCreate")
	w.wantTold("SuccessfulCreate SuccessfulCreate FailedCreate")
	if message := w.set.Status.Conditions[0].Message; !strings.Contains(message, "exceeded quota") {
		t.Errorf("the condition says %q", message)
	}
	w.refusedByQuota(2)
	w.wantTold("FailedCreate")
	w.report(w.instances()[0], virtv1.Failed) // which counts as long as it is there
	w.refusedByQuota(3)
	w.count(1, "the one that ended is removed though none could be made")
	w.wantTold("FailedCreate SuccessfulDelete")
	w.must(w.Delete(t.Context(), quota))
	gomega.NewWithT(t).Eventually(func() error {
		_, err := w.tryPass(&lagging.Client{})
		return err
	}, "5m", "100ms").Should(gomega.Succeed(), "the API server forgets the quota")
	w.wantStatus("0/3 app=web")
}

// refusedByQuota makes a pass that fails.
func (w *world) refusedByQuota(pass int) {
	w.t.Helper()
	if _, err := w.tryPass(&lagging.Client{}); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
		w.t.Fatalf("pass %d: %v", pass, err)
	}
}

func makesNoneInVain(t *testing.T, w *world) {
	w.change(func(spec *virtv1.VirtualMachineInstanceReplicaSetSpec) { spec.Selector.MatchLabels["app"] = "shop" })
	if _, err := w.tryPass(&lagging.Client{}); err == nil || !strings.Contains(err.Error(), "selector does not match labels") {
		t.Errorf("the pass says %v", err)
	}
	w.count(0, "a selector that does not match")
	w.wantStatus("0/0 app=shop ReplicaFailure=True:FailedCreate")
}
