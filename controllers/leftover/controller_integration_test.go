//go:build integration

package leftover_test

import (
	"context"
	"strings"
	"testing"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-vm/slipway/controllers/leftover"
	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// bound is how long a sweep may take on a busy machine.
const bound = 5 * time.Minute

// TestSweep runs the controller against a real API server; the test plays Tekton and the tasks.
func TestSweep(t *testing.T) {
	config := apiserver.Start(t, append(apiserver.Only(t, "../hyperconverged/components/crds", "cdi.kubevirt.io", "kubevirt.io_virtualmachines"), "testdata")...)
	c := apiserver.Player(t, config)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(time.Duration(-1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := leftover.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"what a cancelled run owned goes, all else stays", cancelled},
		{"a run that timed out is swept, one that failed is not", timedOut},
		{"it waits until the last pod of the run has ended", waits},
		{"what is published, and what a machine that stays has as a disk, stays", needed},
		{"a run that says so keeps everything", keeps},
		{"a TaskRun without a pipeline is swept, too", alone},
		{"what changed, or was made anew, since it was seen stays", changedMeanwhile},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newWorld(t, c)) })
	}
}

// world is a test's namespace.
type world struct {
	client.WithWatch
	t         *testing.T
	namespace string
}

func newWorld(t *testing.T, c client.WithWatch) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "leftover-"}}
	w := &world{WithWatch: c, t: t}
	w.must(c.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

// pipeline makes a run of a pipeline with one TaskRun.
func (w *world) pipeline(name string) (*tektonv1.PipelineRun, *tektonv1.TaskRun) {
	w.t.Helper()
	run := &tektonv1.PipelineRun{ObjectMeta: w.meta(name)}
	w.must(w.Create(w.t.Context(), run))
	task := &tektonv1.TaskRun{ObjectMeta: w.meta(name + "-task")}
	task.Labels = map[string]string{"tekton.dev/pipelineRun": name}
	task.OwnerReferences = []metav1.OwnerReference{{APIVersion: "tekton.dev/v1", Kind: "PipelineRun", Name: name, UID: run.UID}}
	w.must(w.Create(w.t.Context(), task))
	return run, task
}

// end writes how a run ended.
func (w *world) end(run client.Object, reason string) {
	w.t.Helper()
	patch := `{"status":{"conditions":[{"type":"Succeeded","status":"False","reason":"` + reason + `"}]}}`
	w.must(w.Status().Patch(w.t.Context(), run, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// made makes object as a task of the TaskRun does; owned says whether the run owns it.
func (w *world) made(object client.Object, by *tektonv1.TaskRun, owned bool) {
	w.t.Helper()
	mark := map[string]string{names.LabelTaskRun: string(by.UID)}
	switch object.(type) {
	case *virtv1.VirtualMachine: // its labels are the manifest's
		object.SetAnnotations(mark)
	default:
		object.SetLabels(mark)
	}
	if owned {
		object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "tekton.dev/v1", Kind: "TaskRun", Name: by.Name, UID: by.UID}})
		if _, secret := object.(*corev1.Secret); secret {
			object.SetLabels(map[string]string{names.LabelTaskRun: string(by.UID), names.LabelTemporary: string(by.UID)})
		}
	}
	w.must(w.Create(w.t.Context(), object))
}

func (w *world) machine(name string, volumes ...string) *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{ObjectMeta: w.meta(name)}
	halted := virtv1.RunStrategyHalted
	vm.Spec.RunStrategy, vm.Spec.Template = &halted, &virtv1.VirtualMachineInstanceTemplateSpec{}
	for _, volume := range volumes {
		vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, virtv1.Volume{
			Name: volume, VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: volume}},
		})
	}
	return vm
}

func (w *world) volume(name string) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{ObjectMeta: w.meta(name), Spec: cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, Storage: &cdiv1.StorageSpec{},
	}}
}

// gone waits until the object is gone.
func gone[T client.Object](w *world, list client.ObjectList, object T) {
	w.t.Helper()
	w.t.Logf("waiting until %T %s is gone", object, object.GetName())
	ctx, stop := context.WithTimeout(w.t.Context(), bound)
	defer stop()
	w.must(await.Object(ctx, w, list, client.ObjectKeyFromObject(object), func(_ T, exists bool) (bool, error) { return !exists, nil }))
}

// there makes sure that the objects are there.
func (w *world) there(objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(object), object); err != nil || object.GetDeletionTimestamp() != nil {
			w.t.Errorf("%T %s is gone: %v", object, object.GetName(), err)
		}
	}
}

// told waits for an event of the reason that says all the words.
func (w *world) told(reason string, words ...string) {
	w.t.Helper()
	w.t.Logf("waiting for an event %s that says %q", reason, words)
	var last string
	for deadline := time.Now().Add(bound); ; <-time.After(200 * time.Millisecond) {
		all := &eventsv1.EventList{}
		w.must(w.List(w.t.Context(), all, client.InNamespace(w.namespace)))
		for _, event := range all.Items {
			missing := false
			for _, word := range words {
				missing = missing || !strings.Contains(event.Note, word)
			}
			if last = event.Reason + ": " + event.Note; event.Reason == reason && !missing {
				return
			}
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("there is no such event; the last one: %s", last)
		}
	}
}

func cancelled(t *testing.T, w *world) {
	run, task := w.pipeline("image")
	_, live := w.pipeline("live")
	vm, disk, secret := w.machine("check"), w.volume("check-disk"), &corev1.Secret{ObjectMeta: w.meta("keys")}
	w.made(vm, task, true)
	w.made(disk, task, true)
	w.made(secret, task, true)
	lease := &coordinationv1.Lease{ObjectMeta: w.meta("step")}
	w.made(lease, task, true)
	lease.Labels = map[string]string{names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "step-cache"}
	w.must(w.Update(t.Context(), lease))

	kept, keptSecret := w.machine("kept"), &corev1.Secret{ObjectMeta: w.meta("kept-keys")}
	w.made(kept, task, false)
	w.made(keptSecret, task, false)
	others, othersSecret := w.machine("others"), &corev1.Secret{ObjectMeta: w.meta("others-keys")}
	w.made(others, live, true)
	w.made(othersSecret, live, true)
	unmarked := w.volume("unmarked")
	unmarked.OwnerReferences = []metav1.OwnerReference{{APIVersion: "tekton.dev/v1", Kind: "TaskRun", Name: task.Name, UID: task.UID}}
	w.must(w.Create(t.Context(), unmarked))

	w.end(task, "TaskRunCancelled")
	w.end(run, "Cancelled")
	gone(w, &virtv1.VirtualMachineList{}, vm)
	gone(w, &cdiv1.DataVolumeList{}, disk)
	gone(w, &coordinationv1.LeaseList{}, lease)
	gone(w, &corev1.SecretList{}, secret)
	w.told("LeftoversRemoved", "cancelled", "VirtualMachine check", "DataVolume check-disk", "Secret keys", "Lease step")
	w.there(kept, keptSecret, others, othersSecret, unmarked, run, task)
}

func timedOut(t *testing.T, w *world) {
	failed, failedTask := w.pipeline("failed")
	evidence := w.machine("evidence")
	w.made(evidence, failedTask, true)
	w.end(failedTask, "Failed")
	w.end(failed, "Failed")
	run, task := w.pipeline("late")
	vm := w.machine("check")
	w.made(vm, task, true)
	w.end(task, "TaskRunTimeout")
	w.end(run, "PipelineRunTimeout")
	gone(w, &virtv1.VirtualMachineList{}, vm)
	w.told("LeftoversRemoved", "timed-out", "VirtualMachine check")
	w.there(evidence)
}

func waits(t *testing.T, w *world) {
	run, task := w.pipeline("image")
	pod := &corev1.Pod{ObjectMeta: w.meta("pod"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	pod.Labels = map[string]string{"tekton.dev/pipelineRun": run.Name}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "tekton.dev/v1", Kind: "TaskRun", Name: task.Name, UID: task.UID}}
	w.must(w.Create(t.Context(), pod))
	early := w.machine("early")
	w.made(early, task, true)
	w.end(run, "Cancelled") // Tekton says so first
	w.end(task, "TaskRunCancelled")

	other, otherTask := w.pipeline("other")
	marker := w.machine("marker")
	w.made(marker, otherTask, true)
	w.end(otherTask, "TaskRunCancelled")
	w.end(other, "Cancelled")
	gone(w, &virtv1.VirtualMachineList{}, marker) // a pass after the one that found the pod
	w.there(early)
	late := w.machine("late")
	w.made(late, task, true) // the task's last breath
	w.must(w.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	gone(w, &virtv1.VirtualMachineList{}, early)
	gone(w, &virtv1.VirtualMachineList{}, late)
}

func needed(t *testing.T, w *world) {
	run, task := w.pipeline("image")
	published, used, free := w.volume("published"), w.volume("used"), w.volume("free")
	for _, volume := range []*cdiv1.DataVolume{published, used, free} {
		w.made(volume, task, true)
	}
	source := &cdiv1.DataSource{ObjectMeta: w.meta("debian")}
	source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: w.namespace, Name: "published"}
	w.must(w.Create(t.Context(), source))
	vm, mine := w.machine("stays", "used"), w.machine("goes", "free")
	w.must(w.Create(t.Context(), vm))
	w.made(mine, task, true)
	w.end(task, "TaskRunCancelled")
	w.end(run, "Cancelled")
	gone(w, &virtv1.VirtualMachineList{}, mine)
	gone(w, &cdiv1.DataVolumeList{}, free)
	w.told("LeftoversKept", "DataVolume published", "debian", "DataVolume used", "VirtualMachine stays")
	w.there(published, used, vm)
}

func keeps(t *testing.T, w *world) {
	run, task := w.pipeline("debug")
	run.Annotations = map[string]string{leftover.AnnotationKeep: "true"}
	w.must(w.Update(t.Context(), run))
	vm := w.machine("check")
	w.made(vm, task, true)
	w.end(task, "TaskRunCancelled")
	w.end(run, "Cancelled")
	other, otherTask := w.pipeline("other")
	marker := w.machine("marker")
	w.made(marker, otherTask, true)
	w.end(otherTask, "TaskRunCancelled")
	w.end(other, "Cancelled")
	gone(w, &virtv1.VirtualMachineList{}, marker)
	w.there(vm)
	// Taking the word back is enough.
	w.must(w.Patch(t.Context(), run, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))))
	gone(w, &virtv1.VirtualMachineList{}, vm)
}

func alone(t *testing.T, w *world) {
	task := &tektonv1.TaskRun{ObjectMeta: w.meta("alone")}
	w.must(w.Create(t.Context(), task))
	vm := w.machine("check")
	w.made(vm, task, true)
	w.end(task, "TaskRunTimeout")
	gone(w, &virtv1.VirtualMachineList{}, vm)
	w.told("LeftoversRemoved", "timed-out", "VirtualMachine check")
}

func changedMeanwhile(t *testing.T, w *world) {
	run, task := w.pipeline("image")
	vm := w.machine("check")
	w.made(vm, task, true)
	seen := &metav1.PartialObjectMetadata{}
	seen.SetGroupVersionKind(virtv1.VirtualMachineGroupVersionKind)
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(vm), seen))

	vm.OwnerReferences = nil // somebody wants to keep it
	w.must(w.Update(t.Context(), vm))
	if changed, err := leftover.SweepAsSeen(t.Context(), w, run, task.UID, seen.DeepCopy()); err != nil || !changed {
		t.Errorf("after an edit: changed %v, error %v", changed, err)
	}
	w.there(vm)

	w.must(w.Delete(t.Context(), vm))
	gone(w, &virtv1.VirtualMachineList{}, vm)
	anew := w.machine("check")
	w.made(anew, task, false)
	if changed, err := leftover.SweepAsSeen(t.Context(), w, run, task.UID, seen.DeepCopy()); err != nil || !changed {
		t.Errorf("after it was made anew: changed %v, error %v", changed, err)
	}
	w.there(anew)
}
