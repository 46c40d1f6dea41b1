//go:build integration

package populator_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/upload"
)

const annotationContent = "cdi.kubevirt.io/storage.contentType"

// target makes a claim to which somebody will send an image, as clients of CDI do.
func (w *world) target(class string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	return w.create(class, "", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = nil
		c.Annotations[upload.AnnotationTarget] = ""
		if change != nil {
			change(c)
		}
	})
}

// serve plays the kubelet of the upload server that prime has: it takes an image.
func (w *world) serve(prime *cdiv1.DataVolume) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	w.until("there is an upload server", func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: upload.ServerName(prime.Name)}, pod) == nil
	})
	pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "cdi-upload-server", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	w.must(w.Status().Update(w.t.Context(), pod))
	w.note("disk", upload.AnnotationReady, "true")
	return pod
}

// take plays the end of an upload server whose image was whole.
func (w *world) take(pod *corev1.Pod) {
	w.t.Helper()
	message, err := filled().Encode()
	w.must(err)
	pod.Status.Phase, pod.Status.Conditions = corev1.PodSucceeded, nil
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(message)}}
	w.must(w.Status().Update(w.t.Context(), pod))
}

func targetIsFilled(t *testing.T, w *world) {
	claim := w.target("fast", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations[annotationContent], c.Annotations["cdi.kubevirt.io/storage.preallocation.requested"] = "kubevirt", "true"
		c.Annotations[upload.AnnotationReady], c.Annotations[annotationPhase] = "true", "Running" // as CDI left it
	})
	dv := w.prime(claim)
	if spec := dv.Spec; spec.Source == nil || spec.Source.Upload == nil || !*spec.Preallocation || spec.ContentType != cdiv1.DataVolumeKubeVirt {
		t.Errorf("the DataVolume is %+v", spec)
	}
	w.note("disk", annotationPhase, "Pending")
	w.until("it does not say that it takes an image", func() bool { return w.claim("disk").Annotations[upload.AnnotationReady] != "true" })
	w.bind("disk", nil)
	pod := w.serve(dv)
	if source := pod.Spec.Volumes[0].PersistentVolumeClaim; source == nil || source.ClaimName != "disk" {
		t.Errorf("the server writes to %+v", pod.Spec.Volumes)
	}
	if found := w.note("disk", annotationPhase, "Running"); !population.Awaited(found) || found.Annotations[population.AnnotationUse] != "false" {
		t.Errorf("the claim says %v", found.Annotations)
	}
	w.take(pod)
	found := w.note("disk", annotationPhase, "Succeeded")
	if found.Annotations[names.AnnotationDigest] != "slipway1:00" || population.Awaited(found) {
		t.Errorf("the claim says %v", found.Annotations)
	}
	w.event(claim, "UploadSucceeded")
	w.gone(dv)
	if found := w.claim("disk"); found.Annotations[upload.AnnotationReady] == "true" || found.Annotations[population.AnnotationProgress] != "100.0%" {
		t.Errorf("the claim says %v", found.Annotations)
	}
}

func targetWaitsForConsumer(t *testing.T, w *world) {
	dv := w.prime(w.target("local", nil))
	w.until("the DataVolume waits", func() bool {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), dv))
		return dv.Status.Phase == cdiv1.WaitForFirstConsumer
	})
	claim := w.claim("disk")
	hurried := claim.DeepCopy()
	hurried.Annotations[names.AnnotationBind] = "" // as virtctl image-upload --force-bind of CDI leaves it
	w.must(w.Patch(t.Context(), hurried, client.MergeFrom(claim)))
	w.until("it is bound at once when that is asked for later", func() bool {
		return w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: upload.ServerName(dv.Name)}, &corev1.Pod{}) == nil
	})
	w.must(w.Delete(t.Context(), w.claim("disk")))
	w.gone(dv)
	now := w.target("local", func(c *corev1.PersistentVolumeClaim) { c.Name, c.Annotations[names.AnnotationBind] = "now", "" })
	w.until("it is bound at once when that is asked for", func() bool {
		return w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: upload.ServerName(population.PrimeName(now))}, &corev1.Pod{}) == nil
	})
}

// user makes a pod that uses claim disk.
func (w *world) user(name, node string, notes map[string]string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Annotations: notes}, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "writer", Image: "registry.local/writer"}},
		Volumes: []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}},
	}}
	w.must(w.Create(w.t.Context(), pod))
	return pod
}

// An image is not written below whoever has the claim mounted.
func targetInUse(t *testing.T, w *world) {
	pod := w.user("writer", "node-1", nil)
	claim := w.target("fast", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "mine" })
	w.event(claim, "UploadTargetInUse")
	if found := w.claim("disk"); !population.Awaited(found) || population.Refused(found) {
		t.Errorf("the claim says %v", found.Annotations)
	}
	if w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: population.PrimeName(claim)}, &cdiv1.DataVolume{}) == nil {
		t.Error("it is to be filled although it is used")
	}
	next := w.user("next", "", nil) // which has no node yet
	pod.Status.Phase = corev1.PodSucceeded
	w.must(w.Status().Update(t.Context(), pod))
	w.until("the next pod is waited for", func() bool {
		return strings.HasPrefix(w.claim("disk").Annotations[annotationMessage], "pod "+w.namespace+"/next using")
	})
	next.Status.Phase = corev1.PodSucceeded
	w.must(w.Status().Update(t.Context(), next))
	w.prime(claim)
	w.note("disk", annotationMessage, "")
}

// The pod that gets the claim bound may have it mounted, too; one that is only there for that does not matter.
func targetOfConsumer(t *testing.T, w *world) {
	claim := w.target("local", nil)
	dv := w.prime(claim)
	w.user("provisioner", "node-1", map[string]string{names.AnnotationTemp: "true"})
	pod := w.user("consumer", "", nil)
	w.must(w.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"node-1"}}}`, annotationNode))))
	w.event(claim, "UploadTargetInUse")
	found := w.note("disk", annotationReason, "UploadTargetInUse")
	if !strings.HasPrefix(found.Annotations[annotationMessage], "pod "+w.namespace+"/consumer using") || found.Annotations[upload.AnnotationReady] == "true" {
		t.Errorf("the claim says %v", found.Annotations)
	}
	server := client.ObjectKey{Namespace: w.namespace, Name: upload.ServerName(dv.Name)}
	if w.Get(t.Context(), server, &corev1.Pod{}) == nil {
		t.Error("there is an upload server although the claim is used")
	}
	pod.Status.Phase = corev1.PodSucceeded
	w.must(w.Status().Update(t.Context(), pod))
	w.until("there is an upload server", func() bool { return w.Get(t.Context(), server, &corev1.Pod{}) == nil })
	w.note("disk", annotationMessage, "")
}

func targetIsWithdrawn(t *testing.T, w *world) {
	claim := w.target("fast", nil)
	dv := w.prime(claim)
	w.bind("disk", nil)
	pod := w.serve(dv)
	w.note("disk", annotationReason, "Pod is running")
	w.must(w.Patch(t.Context(), claim, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
		`{"metadata":{"annotations":{"cdi.kubevirt.io/storage.upload.target":null,%q:"12.00%%",%q:"slipway1:00"}}}`, population.AnnotationProgress, names.AnnotationDigest))))
	w.gone(dv)
	found := w.note("disk", upload.AnnotationReady, "")
	if !population.Awaited(found) {
		t.Errorf("others may use the claim while its server writes: %v", found.Annotations)
	}
	w.event(claim, "UploadWithdrawn")
	w.must(w.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	w.until("others may use the claim", func() bool { return !population.Awaited(w.claim("disk")) })
	found = w.claim("disk")
	for _, name := range []string{annotationPhase, names.AnnotationDigest, population.AnnotationProgress, population.AnnotationFilledBy, population.AnnotationUse, annotationReason} {
		if value, left := found.Annotations[name]; left {
			t.Errorf("the claim still says %s=%s", name, value)
		}
	}
	if len(found.OwnerReferences) > 0 {
		t.Errorf("the claim is %+v", found.ObjectMeta)
	}
	w.must(w.Patch(t.Context(), found, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"cdi.kubevirt.io/storage.upload.target":""}}}`))))
	if again := w.prime(claim); again.UID == dv.UID {
		t.Error("the DataVolume is the one from before")
	}
}

// A disk that is there is not written over, and what nobody can read is said.
func targetsThatAreNone(t *testing.T, w *world) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"filled": func(c *corev1.PersistentVolumeClaim) { c.Annotations[annotationPhase] = "Succeeded" },
		"cloned": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "golden"}
		},
	} {
		w.target("fast", func(c *corev1.PersistentVolumeClaim) {
			change(c)
			c.Name = name
		})
	}
	w.target("fast", func(c *corev1.PersistentVolumeClaim) { c.Annotations[annotationContent] = "iso" })
	w.note("disk", annotationMessage, `annotation cdi.kubevirt.io/storage.contentType is "iso"; write kubevirt or archive`)
	w.note("disk", annotationReason, "NotSupported")
	var all cdiv1.DataVolumeList
	w.must(w.List(t.Context(), &all, client.InNamespace(w.namespace)))
	if len(all.Items) > 0 || population.Chosen(w.claim("filled")) || w.claim("filled").Annotations[annotationPhase] != "Succeeded" {
		t.Errorf("there is\n%s", w.all())
	}
}
