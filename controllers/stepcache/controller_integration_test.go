//go:build integration

package stepcache_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-vm/slipway/controllers/stepcache"
	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	cache "github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// bound is how long a sweep may take on a busy machine.
const bound = 5 * time.Minute

// TestSweeper runs the controller against a real API server; the tests play the runs.
func TestSweeper(t *testing.T) {
	config := apiserver.Start(t, apiserver.Only(t, "../hyperconverged/components/crds", "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	cached := start(t, config)
	c := apiserver.Player(t, config)
	for name, test := range map[string]func(*testing.T, *world){
		"entries over the limit go, the least recently used first": overTheLimit,
		"one in use stays until its clone is done":                 inUse,
		"one that a worker reads stays until the worker has ended": readByWorker,
		"what nobody fills any more goes":                          abandoned,
		"what is being brought needs no Lease, and has its time":   brought,
		"a policy that cannot be read keeps everything":            badPolicy,
		"what only says that it is an entry goes":                  notAnEntry,
		"one that was taken since it was looked at stays":          takenMeanwhile,
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, c, cached)) })
	}
}

// start starts the controller, and returns what it reads of its cache by.
func start(t *testing.T, config *rest.Config) client.Reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(time.Duration(-1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := stepcache.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- mgr.Start(ctx) }()
	return mgr.GetClient()
}

// world is a test's namespace.
type world struct {
	client.WithWatch
	cached    client.Reader // the controller's
	t         *testing.T
	namespace string
}

func newWorld(t *testing.T, c client.WithWatch, cached client.Reader) *world {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sweep-"}}
	w := &world{WithWatch: c, cached: cached, t: t}
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

// entry makes a ready entry that was used so long ago.
func (w *world) entry(name string, ago time.Duration, change func(*cdiv1.DataVolume)) *cdiv1.DataVolume {
	w.t.Helper()
	key := "step1:" + strings.Repeat("0", 63-len(name)) + name + "0"
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: name,
			Labels: map[string]string{cache.LabelState: string(cache.Ready), cache.LabelKey: cache.Key(key).Label()},
			Annotations: map[string]string{
				cache.AnnotationKey: key, cache.AnnotationDigest: digest.New().Sum(1 << 20), cache.AnnotationRunUID: "run-" + name,
				cache.AnnotationFilled: cache.FormatTime(time.Now().Add(-ago - time.Hour)), cache.AnnotationUsed: cache.FormatTime(time.Now().Add(-ago)),
			},
		},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: w.namespace, Name: "source"}},
			PVC: &corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
	}
	if change != nil {
		change(dv)
	}
	// Its clone is complete before it says that it is an entry.
	labels := dv.Labels
	dv.Labels = nil
	w.must(w.Create(w.t.Context(), dv))
	w.phase(dv, cdiv1.Succeeded)
	before := dv.DeepCopy()
	dv.Labels = labels
	w.must(w.Patch(w.t.Context(), dv, client.MergeFrom(before)))
	return dv
}

func (w *world) phase(dv *cdiv1.DataVolume, phase cdiv1.DataVolumePhase) {
	w.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"`+string(phase)+`"}}`))
	w.must(w.Status().Patch(w.t.Context(), dv, patch))
}

func (w *world) policy(data map[string]string) {
	w.t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: cache.ConfigName}, Data: data}
	err := w.Create(w.t.Context(), config)
	if apierrors.IsAlreadyExists(err) {
		err = w.Update(w.t.Context(), config)
	}
	w.must(err)
}

// gone waits until an entry is gone.
func (w *world) gone(name string) {
	w.t.Helper()
	w.t.Logf("waiting until entry %s is gone", name)
	ctx, stop := context.WithTimeout(w.t.Context(), bound)
	defer stop()
	key := client.ObjectKey{Namespace: w.namespace, Name: name}
	w.must(await.Object(ctx, w, &cdiv1.DataVolumeList{}, key, func(_ *cdiv1.DataVolume, exists bool) (bool, error) { return !exists, nil }))
}

// there makes sure that an entry is there.
func (w *world) there(name string) {
	w.t.Helper()
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, &cdiv1.DataVolume{}))
}

func overTheLimit(t *testing.T, w *world) {
	w.entry("a", 3*time.Hour, nil)
	w.entry("b", 2*time.Hour, nil)
	w.entry("c", time.Hour, nil)
	w.policy(map[string]string{"maxCount": "2"})
	w.gone("a")
	w.there("b")
	w.policy(map[string]string{"maxCount": "unlimited", "maxSize": "1Gi"})
	w.gone("b")
	w.there("c")
	w.policy(map[string]string{"maxAge": "30m"})
	w.gone("c")
}

func inUse(t *testing.T, w *world) {
	w.entry("a", 2*time.Hour, nil)
	clone := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "clone"}, Spec: cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: w.namespace, Name: "a"}}, Storage: &cdiv1.StorageSpec{},
	}}
	w.must(w.Create(t.Context(), clone))
	w.entry("b", time.Hour, nil)
	w.policy(map[string]string{"maxCount": "0"})
	w.gone("b") // of the same pass that lets a alone
	w.there("a")
	w.phase(clone, cdiv1.Succeeded)
	w.gone("a")
}

func readByWorker(t *testing.T, w *world) {
	w.entry("a", 2*time.Hour, nil)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reader", Labels: map[string]string{names.LabelPod: cache.KindWorker}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}}}},
		},
	}
	w.must(w.Create(t.Context(), pod))
	gomega.NewWithT(t).Eventually(func() error {
		return w.cached.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{})
	}, bound, "50ms").Should(gomega.Succeed(), "the controller knows the worker")
	w.entry("b", time.Hour, nil)
	w.policy(map[string]string{"maxCount": "0"})
	w.gone("b")
	w.there("a")
	w.must(w.Status().Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))))
	w.gone("a")
}

func abandoned(t *testing.T, w *world) {
	filling := func(dv *cdiv1.DataVolume) { dv.Labels[cache.LabelState] = string(cache.Filling) }
	store := &cache.Store{Client: w, Log: slog.New(slog.DiscardHandler), Run: cache.Run{Namespace: w.namespace, Name: "run", UID: "run-held"}}
	held := w.keyOf("held")
	entry, lock, err := store.Take(t.Context(), cache.Query{Key: held})
	if entry != nil || lock == nil || err != nil {
		t.Fatal(entry, lock, err)
	}
	w.entry("held", time.Hour, filling)
	w.entry("left", time.Hour, filling)
	w.gone("left")
	w.there("held")
	// Another run has the Lease now: whoever filled the entry is gone.
	other := &cache.Store{Client: w, Log: slog.New(slog.DiscardHandler), Run: cache.Run{Namespace: w.namespace, Name: "run", UID: "run-other"}}
	w.must(lock.Release(t.Context()))
	if _, lock, err = other.Take(t.Context(), cache.Query{Key: held}); lock == nil || err != nil {
		t.Fatal(lock, err)
	}
	defer func() { w.must(lock.Release(context.WithoutCancel(t.Context()))) }()
	w.entry("nudge", time.Hour, filling)
	w.gone("nudge")
	w.gone("held")
}

func brought(t *testing.T, w *world) {
	w.entry("brought", time.Hour, func(dv *cdiv1.DataVolume) {
		dv.Labels[cache.LabelState] = string(cache.Filling)
		dv.Annotations[cache.AnnotationFrom] = "images/entry"
	})
	w.must(w.pass(events.NewFakeRecorder(10), w, time.Now()))
	w.there("brought")
	w.must(w.pass(events.NewFakeRecorder(10), w, time.Now().Add(time.Hour)))
	w.gone("brought")
}

func (w *world) keyOf(name string) cache.Key {
	return cache.Key("step1:" + strings.Repeat("0", 63-len(name)) + name + "0")
}

func badPolicy(t *testing.T, w *world) {
	w.entry("a", time.Hour, nil)
	w.entry("b", 2*time.Hour, nil)
	recorder := events.NewFakeRecorder(10)
	w.policy(map[string]string{"maxCount": "1", "maxCuont": "1"})
	w.must(w.pass(recorder, w, time.Now()))
	select {
	case event := <-recorder.Events:
		if !strings.Contains(event, "maxCuont is not known; write maxCount, maxAge, maxSize or from") {
			t.Errorf("the event says %q", event)
		}
	default:
		t.Error("nobody is told")
	}
	w.there("a")
	w.there("b")
}

// pass makes a single pass over the namespace with a reader that may lag behind.
func (w *world) pass(recorder events.EventRecorder, c client.Client, now time.Time) error {
	r := stepcache.NewReconciler(c, w, recorder, func() time.Time { return now })
	_, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: w.namespace}})
	return err
}

func notAnEntry(_ *testing.T, w *world) {
	w.entry("nodigest", time.Hour, func(dv *cdiv1.DataVolume) { delete(dv.Annotations, cache.AnnotationDigest) })
	w.entry("otherkey", time.Hour, func(dv *cdiv1.DataVolume) { dv.Labels[cache.LabelKey] = "0" })
	w.gone("nodigest")
	w.gone("otherkey")
}

func takenMeanwhile(t *testing.T, w *world) {
	dv := w.entry("a", 20*24*time.Hour, nil)
	past := dv.DeepCopy()
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(dv), past))
	store := &cache.Store{Client: w, Log: slog.New(slog.DiscardHandler), Run: cache.Run{Namespace: w.namespace, Name: "run", UID: "x"}}
	taken, _, err := store.Take(t.Context(), cache.Query{Key: w.keyOf("a")})
	if taken == nil || err != nil {
		t.Fatal(taken, err)
	}
	w.must(w.pass(events.NewFakeRecorder(10), &stale{Client: lagging.Client{Client: w}, past: past}, time.Now().Add(11*24*time.Hour)))
	w.there("a")
}

// stale lists a DataVolume as it was.
type stale struct {
	lagging.Client
	past *cdiv1.DataVolume
}

// List lists the past.
func (s *stale) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if volumes, ok := list.(*cdiv1.DataVolumeList); ok {
		volumes.Items = []cdiv1.DataVolume{*s.past}
		return nil
	}
	return s.Client.List(ctx, list, options...)
}
