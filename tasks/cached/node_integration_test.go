//go:build integration

package cached_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
)

// imageID is the image that the tasks run in.
const imageID = "registry.example.com/guestfs@sha256:abababababababababababababababababababababababababababababababab"

// bound is how long anything may take on a busy machine.
const bound = 5 * time.Minute

// node plays the DataVolume controller, the storage and the kubelet for a namespace: each claim's
// disk is a file, a clone is a copy of it, an import a download, and worker pods do their work.
type node struct {
	client.WithWatch
	t         *testing.T
	namespace string
	folder    string
	server    *httptest.Server

	mu sync.Mutex
	// file is what the server has, etag its version, imports how often it was imported. next, if any, is the version that
	// it has once the next import has come.
	file, etag, next string
	imports          int
	workers          int
	// kill has the next worker on a device killed after its first block; hold keeps storage from cloning.
	kill bool
	hold string
	// gate, if any, is closed when workers may begin.
	gate chan struct{}
	// lost has the next worker go without a word, and its entry with it: before its work, or after.
	lost lostWorker
}

// lostWorker says when a worker is lost.
type lostWorker int

const (
	never lostWorker = iota
	beforeWork
	afterWork
)

func newNode(t *testing.T, c client.WithWatch, namespace string) *node {
	t.Helper()
	n := &node{WithWatch: c, t: t, namespace: namespace, folder: t.TempDir(), file: "vendor's disk", etag: `"1"`}
	n.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.mu.Lock()
		defer n.mu.Unlock()
		w.Header().Set("Etag", n.etag)
		_, _ = w.Write([]byte(n.file))
	}))
	t.Cleanup(n.server.Close)
	n.pod()
	n.follow(&cdiv1.DataVolumeList{}, n.volume)
	n.follow(&corev1.PodList{}, n.worker)
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// follow calls act for each object that is made or deleted.
func (n *node) follow(list client.ObjectList, act func(client.Object, bool) error) {
	n.t.Helper()
	watcher, err := n.Watch(n.t.Context(), list, client.InNamespace(n.namespace))
	n.must(err)
	ended := make(chan struct{})
	n.t.Cleanup(func() { watcher.Stop(); <-ended })
	go func() {
		defer close(ended)
		for event := range watcher.ResultChan() {
			object, ok := event.Object.(client.Object)
			if !ok || event.Type != "ADDED" && event.Type != "DELETED" {
				continue
			}
			if err := act(object, event.Type == "DELETED"); err != nil && n.t.Context().Err() == nil {
				n.t.Errorf("playing the node: %s: %v", object.GetName(), err)
			}
		}
	}()
}

// disk is the file of a claim's disk.
func (n *node) disk(claim string) string { return filepath.Join(n.folder, claim, names.DiskFile) }

func (n *node) write(claim, content string) {
	n.t.Helper()
	n.must(os.MkdirAll(filepath.Dir(n.disk(claim)), 0o755))
	n.must(os.WriteFile(n.disk(claim), []byte(content), 0o644))
}

func (n *node) content(claim string) string {
	n.t.Helper()
	data, err := os.ReadFile(n.disk(claim))
	n.must(err)
	return string(data)
}

// claim makes a claim with a disk.
func (n *node) claim(name, content string) {
	n.t.Helper()
	n.write(name, content)
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: n.namespace}, Spec: newVolume("x", n.server.URL).Spec}
	n.must(n.makeClaim(dv, ""))
}

func (n *node) makeClaim(dv *cdiv1.DataVolume, digest string) error {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: dv.Name, Labels: dv.Labels, Annotations: dv.Annotations},
		Spec:       *dv.Spec.PVC.DeepCopy(),
	}
	if digest != "" {
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		claim.Annotations[names.AnnotationDigest] = digest
	}
	if err := n.Create(context.Background(), claim); err != nil {
		return err
	}
	return n.Status().Patch(context.Background(), claim, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Bound"}}`)))
}

// volume fills a DataVolume's claim, or removes it.
func (n *node) volume(object client.Object, deleted bool) error {
	dv := object.(*cdiv1.DataVolume)
	if deleted {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: dv.Name}}
		free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := n.Patch(context.Background(), claim, free); err != nil {
			return client.IgnoreNotFound(err)
		}
		return client.IgnoreNotFound(n.Delete(context.Background(), claim))
	}
	content, digest := "", ""
	n.mu.Lock()
	hold := n.hold
	n.mu.Unlock()
	if from := dv.Spec.Source.PVC; from != nil && hold != "" {
		return n.Create(context.Background(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: dv.Namespace, Name: dv.Name},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: dv.Namespace, Name: dv.Name},
			Type:           corev1.EventTypeWarning, Reason: "ProvisioningFailed", Message: hold,
		})
	}
	if from := dv.Spec.Source.PVC; from != nil {
		data, err := os.ReadFile(n.disk(from.Name))
		if err != nil {
			return err
		}
		content = string(data)
	} else {
		n.mu.Lock()
		content = n.file
		n.imports++
		if n.next != "" {
			n.etag, n.next = n.next, ""
		}
		n.mu.Unlock()
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.disk(dv.Name)), 0o755), os.WriteFile(n.disk(dv.Name), []byte(content), 0o644)); err != nil {
		return err
	}
	if dv.Spec.Source.HTTP != nil {
		var err error
		if digest, err = stepcache.DiskDigest(context.Background(), n.disk(dv.Name)); err != nil {
			return err
		}
	}
	if err := n.makeClaim(dv, digest); err != nil {
		return err
	}
	dv.Status.Phase = cdiv1.Succeeded
	if err := n.Status().Update(context.Background(), dv); !apierrors.IsConflict(err) { // another of its name is not meant
		return client.IgnoreNotFound(err)
	}
	return nil
}

// worker does the work of a worker pod.
func (n *node) worker(object client.Object, deleted bool) error {
	pod := object.(*corev1.Pod)
	if deleted || pod.Labels[names.LabelPod] != stepcache.KindWorker {
		return nil
	}
	n.mu.Lock()
	n.workers++
	n.mu.Unlock()
	work := stepcache.Work{Report: filepath.Join(n.folder, pod.Name)}
	for _, volume := range pod.Spec.Volumes {
		switch path := n.disk(volume.PersistentVolumeClaim.ClaimName); volume.Name {
		case "entry":
			work.Entry = path
		case "target":
			work.Target = path
		}
	}
	for _, arg := range pod.Spec.Containers[0].Args {
		work.InPlace = work.InPlace || arg == "--in-place"
		if digest, ok := strings.CutPrefix(arg, "--digest="); ok {
			work.Digest = digest
		}
	}
	n.mu.Lock()
	kill, gate, lost := n.kill && work.InPlace, n.gate, n.lost
	n.kill, n.lost = n.kill && !kill, never
	n.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if kill {
		return n.killWorker(pod, work)
	}
	if lost != never {
		return n.loseWorker(pod, work, lost)
	}
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if work.Do(context.Background()) != nil {
		pod.Status.Phase = corev1.PodFailed
	}
	message, err := os.ReadFile(work.Report)
	if err != nil {
		return err
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(message)}}}}
	return n.report(pod, before)
}

// report writes what has become of a pod since before, as a kubelet does: whatever else changed.
func (n *node) report(pod, before *corev1.Pod) error {
	return client.IgnoreNotFound(n.Status().Patch(context.Background(), pod, client.MergeFrom(before)))
}

// loseWorker takes a worker and its entry away. A pod is gone once its processes are.
func (n *node) loseWorker(pod *corev1.Pod, work stepcache.Work, when lostWorker) error {
	if when == afterWork {
		if err := work.Do(context.Background()); err != nil {
			return err
		}
	}
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: filepath.Base(filepath.Dir(work.Entry))}}
	return errors.Join(client.IgnoreNotFound(n.Delete(context.Background(), dv)), client.IgnoreNotFound(n.Delete(context.Background(), pod)))
}

// killWorker ends a worker that has written the first bytes of the entry onto the device.
func (n *node) killWorker(pod *corev1.Pod, work stepcache.Work) error {
	from, err := os.ReadFile(work.Entry)
	if err != nil {
		return err
	}
	to, err := os.ReadFile(work.Target)
	if err != nil {
		return err
	}
	const written = 3
	half := append(append([]byte(nil), from[:written]...), to[written:]...)
	if err := os.WriteFile(work.Target, half, 0o644); err != nil {
		return err
	}
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodFailed
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}}}}
	return n.report(pod, before)
}

// pod makes the pod that the tasks of this process run in.
func (n *node) pod() {
	n.t.Helper()
	host, err := os.Hostname()
	n.must(err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: host},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "step-task", Image: "registry.example.com/guestfs:v1"}}},
	}
	n.must(n.Create(n.t.Context(), pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "step-task", ImageID: imageID}}
	n.must(n.Status().Update(n.t.Context(), pod))
}

// entries are the cache's entries that are ready.
func (n *node) entries() []stepcache.Entry {
	n.t.Helper()
	var volumes cdiv1.DataVolumeList
	n.must(n.List(n.t.Context(), &volumes, client.InNamespace(n.namespace), client.MatchingLabels{stepcache.LabelState: string(stepcache.Ready)}))
	return stepcache.Entries(volumes.Items)
}

// poison changes an entry's disk behind everybody's back.
func (n *node) poison(entry string) {
	n.t.Helper()
	n.write(entry, n.content(entry)+"!")
}
