//go:build integration

package objecttransfer

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	pending = cdiv1.ObjectTransferPending
	running = cdiv1.ObjectTransferRunning
)

// TestTransfers runs the controllers as virt-controller does: what they wait for wakes them.
func TestTransfers(t *testing.T) {
	c, _ := start(t, SetupWithManager)
	for name, test := range map[string]struct {
		kind string
		do   func(*world)
	}{
		"a pod is in the way":                            {kindDataVolume, podInTheWay},
		"its source comes later, and then its target":    {kindClaim, everythingLater},
		"the source is somebody's":                       {kindClaim, sourceOfAnother},
		"two want the same":                              {kindDataVolume, two},
		"the target's namespace does not take it":        {kindClaim, tooLarge},
		"a new name in its namespace":                    {kindDataVolume, renamed},
		"a pod comes late":                               {kindClaim, podComesLate},
		"somebody is faster":                             {kindClaim, somebodyFaster},
		"the volume was given to another meanwhile":      {kindClaim, givenAway},
		"one that cannot begin":                          {"Secret", unknownKind},
		"one that is deleted while it waits":             {kindDataVolume, deletedEarly},
		"one whose target's namespace is gone goes back": {kindDataVolume, goesBack},
	} {
		t.Run(name, func(t *testing.T) {
			kind := test.kind
			if kind != kindDataVolume {
				kind = kindClaim
			}
			w := newWorld(t, c, kind)
			w.transfer.Spec.Source.Kind = test.kind
			test.do(w)
		})
	}
}

func (w *world) pod(claim types.NamespacedName) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, GenerateName: "guest-"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "one", Image: "i"}},
		Volumes:    []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}}},
	}}
	w.must(w.Create(w.Context(), pod))
	return pod
}

func (w *world) end(pod *corev1.Pod) {
	w.Helper()
	pod.Status.Phase = corev1.PodSucceeded
	w.must(w.Status().Update(w.Context(), pod))
	w.must(w.Delete(w.Context(), pod, client.GracePeriodSeconds(0)))
}

// arrives waits for the end.
func (w *world) arrives() {
	w.Helper()
	w.says(cdiv1.ObjectTransferComplete, sayComplete)
	w.ends()
}

func podInTheWay(w *world) {
	pod := w.pod(w.from)
	w.begin()
	if reason := w.says(pending, sayPodsOfDV); reason != pod.Name {
		w.Errorf("it waits for %q", reason)
	}
	w.end(pod)
	w.arrives()
}

func everythingLater(w *world) {
	w.transfer.Spec.Source.RequiredAnnotations = map[string]string{"ready": "yes"}
	w.transfer.Spec.Source.Name = "later"
	w.to.Namespace = w.from.Namespace + "-later"
	w.begin()
	w.says(pending, sayNamespace)
	w.must(w.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.to.Namespace}}))
	w.says(pending, sayNoSource)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.from.Namespace, Name: "later"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("local"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	w.must(w.Create(w.Context(), claim))
	if reason := w.says(pending, sayAnnotations); !strings.Contains(reason, "ready") {
		w.Errorf("it waits for %q", reason)
	}
	claim.Annotations = map[string]string{"ready": "yes"}
	w.must(w.Update(w.Context(), claim))
	w.says(pending, sayUnbound)
	taken := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.to.Namespace, Name: w.to.Name}, Spec: *claim.Spec.DeepCopy()}
	w.must(w.Create(w.Context(), taken))
	w.says(pending, sayTargetThere)
	w.must(w.Delete(w.Context(), taken))
	w.says(pending, sayUnbound)
	w.must(w.Delete(w.Context(), w.transfer))
	w.until("the transfer is gone", w.gone)
}

func sourceOfAnother(w *world) {
	claim := w.claim(w.from)
	w.must(w.Patch(w.Context(), claim, client.RawPatch(types.MergePatchType, []byte(
		`{"metadata":{"finalizers":["`+finalizerCloned+`"],"annotations":{"`+AnnotationName+`":"another"}}}`))))
	w.begin()
	if reason := w.says(pending, sayLocked); reason != "another" {
		w.Errorf("it waits for %q", reason)
	}
	w.must(w.Patch(w.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+AnnotationName+`":null}}}`))))
	w.says(pending, sayFinalizer+finalizerCloned)
	w.must(w.Patch(w.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.arrives()
}

func two(w *world) {
	claim := w.claim(w.from)
	other := &cdiv1.ObjectTransfer{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}, Spec: *w.transfer.Spec.DeepCopy()}
	other.Spec.Source.Kind, other.Spec.Target.Name = kindClaim, new("elsewhere")
	w.must(w.Create(w.Context(), other))
	w.until("the claim of a DataVolume is not moved alone", func() bool {
		return w.read(client.ObjectKeyFromObject(other), other) && len(other.Status.Conditions) == 1 && other.Status.Conditions[0].Message == sayControlled
	})
	if w.claim(w.from).UID != claim.UID {
		w.Error("it was moved")
	}
	w.begin()
	w.arrives()
	w.until("the other one finds nothing", func() bool {
		return w.read(client.ObjectKeyFromObject(other), other) && other.Status.Conditions[0].Message == sayNoSource
	})
}

func tooLarge(w *world) {
	limit := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: w.to.Namespace, Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypePersistentVolumeClaim, Max: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("500Mi")},
	}}}}
	w.must(w.Create(w.Context(), limit))
	w.begin()
	if reason := w.says(pending, sayRefused); !strings.Contains(reason, "500Mi") {
		w.Errorf("it waits for %q", reason)
	}
	w.isAt(w.from)
	w.must(w.Delete(w.Context(), limit))
	touch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"again":"yes"}}}`)) // nobody watches limits: it is asked again, now or in ten seconds
	w.must(w.Patch(w.Context(), w.transfer, touch))
	w.arrives()
}

func renamed(w *world) {
	w.to = types.NamespacedName{Namespace: w.from.Namespace, Name: "renamed"}
	w.transfer.Spec.Target = cdiv1.TransferTarget{Name: &w.to.Name}
	w.begin()
	w.arrives()
}

func podComesLate(w *world) {
	held := w.pod(types.NamespacedName{Namespace: w.from.Namespace, Name: "held"}) // keeps the deleted claim in this world
	w.begin()
	w.says(running, sayGoing)
	pod := w.pod(w.from)
	w.must(w.Get(w.Context(), client.ObjectKeyFromObject(w.volume), w.volume))
	if w.volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || w.volume.Annotations[annotationFor] != w.transfer.Name {
		w.Errorf("the volume on its way is %+v", w.volume)
	}
	w.end(held)
	w.end(pod)
	w.arrives()
}

func somebodyFaster(w *world) {
	pod := w.pod(types.NamespacedName{Namespace: w.from.Namespace, Name: "held"}) // keeps the deleted claim in this world
	w.begin()
	w.says(running, sayGoing)
	taken := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.to.Namespace, Name: w.to.Name}, Spec: *w.claim(w.from).Spec.DeepCopy()}
	taken.Spec.VolumeName = ""
	w.must(w.Create(w.Context(), taken))
	w.end(pod)
	w.says(running, sayTargetThere)
	w.must(w.Get(w.Context(), client.ObjectKeyFromObject(w.volume), w.volume))
	if ref := w.volume.Spec.ClaimRef; ref.Namespace != w.from.Namespace {
		w.Errorf("the volume is reserved for the name of a stranger: %+v", ref)
	}
	w.must(w.Delete(w.Context(), taken))
	w.arrives()
}

func givenAway(w *world) {
	pod := w.pod(types.NamespacedName{Namespace: w.from.Namespace, Name: "held"})
	w.begin()
	w.says(running, sayGoing)
	w.must(w.Get(w.Context(), client.ObjectKeyFromObject(w.volume), w.volume))
	w.volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: w.to.Namespace, Name: "stranger"}
	w.must(w.Update(w.Context(), w.volume))
	w.end(pod)
	if reason := w.says(cdiv1.ObjectTransferError, sayWrongClaim); !strings.Contains(reason, "stranger") {
		w.Errorf("it fails for %q", reason)
	}
	w.must(w.Delete(w.Context(), w.transfer))
	w.until("the transfer is gone", w.gone)
	w.must(w.Get(w.Context(), client.ObjectKeyFromObject(w.volume), w.volume))
	if w.volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || len(w.volume.Labels)+len(w.volume.Annotations) > 0 {
		w.Errorf("the volume of the stranger is %+v", w.volume)
	}
}

func unknownKind(w *world) {
	w.begin()
	w.says(cdiv1.ObjectTransferError, sayError)
	w.must(w.Delete(w.Context(), w.transfer))
	w.until("the transfer is gone", w.gone)
	w.isAt(w.from)
}

func deletedEarly(w *world) {
	w.pod(w.from)
	w.begin()
	w.says(pending, sayPodsOfDV)
	w.must(w.Delete(w.Context(), w.transfer))
	w.until("the transfer is gone", w.gone)
	if w.claim(w.from).DeletionTimestamp != nil {
		w.Error("the claim is being deleted")
	}
}

func goesBack(w *world) {
	pod := w.pod(types.NamespacedName{Namespace: w.from.Namespace, Name: "held"})
	was := w.claim(w.from).UID
	w.begin()
	w.says(running, sayGoing)
	w.must(w.Delete(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.to.Namespace}}))
	w.end(pod)
	w.says(running, sayRefused)
	w.must(w.Delete(w.Context(), w.transfer))
	w.until("the transfer is gone", w.gone)
	w.isAt(w.from)
	if w.claim(w.from).UID == was {
		w.Error("the source was never deleted")
	}
}
