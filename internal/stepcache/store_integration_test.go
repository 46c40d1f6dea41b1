//go:build integration

package stepcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// bound is how long anything may take on a busy machine.
const bound = 5 * time.Minute

// TestStore uses the cache of a real API server; the tests play the DataVolume controller and the kubelet.
func TestStore(t *testing.T) {
	config := apiserver.Start(t, apiserver.Only(t, "../../controllers/hyperconverged/components/crds", "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *world){
		"two runs at the same moment do the work once":        workedOnce,
		"many runs at the same moment do the work once":       manyAtOnce,
		"a run that fails hands the work on":                  failedRun,
		"a run that is gone is taken over from":               goneRun,
		"a retry of the same run goes on at once":             retriedRun,
		"what a crash left half-filled is never taken":        crashed,
		"a clone that fails is no entry":                      failedClone,
		"a run that was taken for gone keeps nothing":         lostLock,
		"an old result is no answer where a new one is asked": tooOld,
		"an entry of another class or mode is no answer":      otherPlace,
		"an entry that is deleted under a run is gone for it": deletedUnderRun,
		"a label that is cut off is no key":                   cutKey,
		"a worker's report is the outcome":                    workerReports,
		"a worker on a device may leave it half rewritten":    workerOnDevice,
		"storage that refuses to clone is not waited for":     refusingStorage,
		"a volume without a class is not cloned":              volumeWithoutClass,
		"a worker that cannot start says why":                 workerWithoutNode,
		"this run's pod tells image and digest":               ownPod,
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, c)) })
	}
}

type world struct {
	client.WithWatch
	t         *testing.T
	namespace string
	key       Key
}

func newWorld(t *testing.T, c client.WithWatch) *world {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cache-"}}
	w := &world{WithWatch: c, t: t, key: mustKey(t, newStep(nil))}
	w.must(c.Create(t.Context(), ns))
	w.namespace = ns.Name
	w.claim("disk")
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) claim(name string) {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("fast"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	w.must(w.Create(w.t.Context(), claim))
}

// run is a run of that uid. It takes no other for gone: a busy machine may keep that one from its Lease for long.
func (w *world) run(uid string) *Store {
	return &Store{Client: w, Log: slog.New(slog.DiscardHandler), Run: Run{Namespace: w.namespace, Name: uid, UID: types.UID(uid)}, Patience: time.Hour}
}

// takes takes with a bound.
func (w *world) takes(s *Store, q Query) (*Entry, *Lock) {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.t.Context(), bound)
	defer stop()
	entry, lock, err := s.Take(ctx, q)
	w.must(err)
	if lock != nil { // a lock ends with the context of Take, of which this one is short
		w.must(lock.Release(w.t.Context()))
		entry, lock, err = s.Take(w.t.Context(), q)
		w.must(err)
	}
	return entry, lock
}

// completes gives each clone of this world that begins the phase, until the test ends.
func (w *world) completes(phase cdiv1.DataVolumePhase) {
	w.t.Helper()
	watcher, err := w.Watch(w.t.Context(), &cdiv1.DataVolumeList{}, client.InNamespace(w.namespace))
	w.must(err)
	w.t.Cleanup(watcher.Stop)
	go func() {
		for event := range watcher.ResultChan() {
			dv, ok := event.Object.(*cdiv1.DataVolume)
			if ok && dv.Status.Phase == "" && dv.DeletionTimestamp == nil {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"`+string(phase)+`"}}`))
				if err := w.Status().Patch(context.Background(), dv, patch); client.IgnoreNotFound(err) != nil {
					w.t.Errorf("playing the DataVolume controller: %v", err)
				}
			}
		}
	}()
}

func (w *world) saves(s *Store, lock *Lock) *Entry {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.t.Context(), bound)
	defer stop()
	entry, err := s.Save(ctx, lock, Result{Step: "virt-customize", Claim: "disk", Digest: base})
	w.must(err)
	w.must(lock.Release(w.t.Context()))
	return entry
}

func (w *world) volumes() []cdiv1.DataVolume {
	w.t.Helper()
	var list cdiv1.DataVolumeList
	w.must(w.List(w.t.Context(), &list, client.InNamespace(w.namespace)))
	return list.Items
}

func (w *world) noLeases() {
	w.t.Helper()
	var leases coordinationv1.LeaseList
	w.must(w.List(w.t.Context(), &leases, client.InNamespace(w.namespace)))
	if len(leases.Items) > 0 {
		w.t.Errorf("a Lease stays: %+v", leases.Items[0])
	}
}

func workedOnce(t *testing.T, w *world) {
	w.completes(cdiv1.Succeeded)
	first, second := w.run("first"), w.run("second")
	_, lock := w.takes(first, Query{Key: w.key})
	if lock == nil {
		t.Fatal("the first run has nothing to do")
	}
	got := make(chan *Entry, 1)
	go func() {
		entry, lock, err := second.Take(t.Context(), Query{Key: w.key})
		if lock != nil || err != nil {
			t.Errorf("the second run works, too: %v, %v", lock, err)
		}
		got <- entry
	}()
	saved := w.saves(first, lock)
	t.Log("waiting until the second run has the first one's entry")
	select {
	case entry := <-got:
		if entry == nil || entry.Name != saved.Name || entry.Digest != base || entry.State != Ready || entry.Step != "virt-customize" || entry.Run != w.namespace+"/first" {
			t.Errorf("the second run takes %+v, the first kept %+v", entry, saved)
		}
	case <-time.After(bound):
		t.Fatal("the second run still waits")
	}
	w.noLeases()
}

func manyAtOnce(t *testing.T, w *world) {
	w.completes(cdiv1.Succeeded)
	const runs = 8
	var worked atomic.Int32
	ended := make(chan error, runs)
	for n := range runs {
		go func() {
			s := w.run("run-" + string(rune('a'+n)))
			entry, lock, err := s.Take(t.Context(), Query{Key: w.key})
			if lock != nil {
				worked.Add(1)
				_, err = s.Save(t.Context(), lock, Result{Claim: "disk", Digest: base})
				err = errors.Join(err, lock.Release(t.Context()))
			} else if entry == nil {
				err = errors.Join(err, errors.New("neither an entry nor the work"))
			}
			ended <- err
		}()
	}
	t.Log("waiting until all runs have ended")
	for range runs {
		select {
		case err := <-ended:
			w.must(err)
		case <-time.After(bound):
			t.Fatal("a run still waits")
		}
	}
	if worked.Load() != 1 || len(w.volumes()) != 1 {
		t.Errorf("%d runs worked, %d entries are there", worked.Load(), len(w.volumes()))
	}
	w.noLeases()
}

func failedRun(t *testing.T, w *world) {
	_, lock := w.takes(w.run("first"), Query{Key: w.key})
	got := make(chan *Lock, 1)
	go func() {
		_, lock, err := w.run("second").Take(t.Context(), Query{Key: w.key})
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	w.must(lock.Release(t.Context()))
	t.Log("waiting until the second run may work")
	select {
	case lock := <-got:
		if lock == nil {
			t.Fatal("the second run takes what nobody kept")
		}
		w.must(lock.Release(t.Context()))
	case <-time.After(bound):
		t.Fatal("the second run still waits")
	}
}

func goneRun(t *testing.T, w *world) {
	dying, die := context.WithCancel(t.Context())
	if _, lock, err := w.run("first").Take(dying, Query{Key: w.key}); lock == nil || err != nil {
		t.Fatal(lock, err)
	}
	die() // as a killed process, it neither renews nor releases
	second := w.run("second")
	second.Patience = 2 * time.Second
	begun := time.Now()
	_, lock := w.takes(second, Query{Key: w.key})
	if lock == nil {
		t.Fatal("nobody works")
	}
	if took := time.Since(begun); took < second.Patience {
		t.Errorf("the Lease was taken after %s from a run that may be alive", took)
	}
	w.must(lock.Release(t.Context()))

	// One that was not renewed for longer than clocks explain is taken at once.
	old := w.run("old")
	old.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	w.must(w.Create(t.Context(), old.newLease(client.ObjectKey{Namespace: w.namespace, Name: LeaseName(w.key)})))
	third := w.run("third")
	if _, lock = w.takes(third, Query{Key: w.key}); lock == nil {
		t.Fatal("nobody works")
	}
	w.must(lock.Release(t.Context()))
}

func retriedRun(t *testing.T, w *world) {
	dying, die := context.WithCancel(t.Context())
	if _, lock, err := w.run("run").Take(dying, Query{Key: w.key}); lock == nil || err != nil {
		t.Fatal(lock, err)
	}
	die()
	again := w.run("run")
	_, lock := w.takes(again, Query{Key: w.key})
	if lock == nil {
		t.Fatal("the retry waits for itself")
	}
	w.must(lock.Release(t.Context()))
	w.noLeases()
}

// A process is killed after each of its writes; whoever comes next never takes what it left, and ends with one good entry.
func crashed(t *testing.T, w *world) {
	left := buildEntry(filling{key: w.key, digest: base, source: w.read("disk"), run: w.run("killed").Run, now: time.Now()})
	w.must(w.Create(t.Context(), left)) // killed before its clone was complete, or before it was made ready
	w.phase(left, cdiv1.Succeeded)
	s := w.run("next")
	entry, lock := w.takes(s, Query{Key: w.key})
	if entry != nil || lock == nil {
		t.Fatalf("what was left half-filled is taken: %+v", entry)
	}
	w.completes(cdiv1.Succeeded)
	saved := w.saves(s, lock)
	if all := w.volumes(); len(all) != 1 || all[0].Name != saved.Name {
		t.Errorf("entries: %+v", all)
	}
	taken, _ := w.takes(w.run("last"), Query{Key: w.key})
	if taken == nil || taken.Name != saved.Name {
		t.Errorf("%+v is taken, want %+v", taken, saved)
	}
}

func (w *world) read(claim string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	found := &corev1.PersistentVolumeClaim{}
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: claim}, found))
	return found
}

func (w *world) phase(dv *cdiv1.DataVolume, phase cdiv1.DataVolumePhase) {
	w.t.Helper()
	w.must(w.Status().Patch(w.t.Context(), dv, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"`+string(phase)+`"}}`))))
}

func failedClone(t *testing.T, w *world) {
	w.completes(cdiv1.Failed)
	s := w.run("run")
	_, lock := w.takes(s, Query{Key: w.key})
	if _, err := s.Save(t.Context(), lock, Result{Claim: "disk", Digest: base}); err == nil || !strings.Contains(err.Error(), "failed") {
		t.Errorf("a failed clone is kept: %v", err)
	}
	if _, err := s.Save(t.Context(), lock, Result{Claim: "none", Digest: base}); !apierrors.IsNotFound(err) {
		t.Errorf("a claim that is not there is kept: %v", err)
	}
	w.must(lock.Release(t.Context()))
	if left := w.volumes(); len(left) > 0 {
		t.Errorf("it left %+v", left[0].ObjectMeta)
	}
	// A clone that never ends is dropped with the time for it.
	slow := &world{WithWatch: w.WithWatch, t: t, key: w.key}
	ns := newWorld(t, w.WithWatch)
	slow.namespace = ns.namespace
	s = slow.run("run")
	_, lock = slow.takes(s, Query{Key: w.key})
	err := ends(t, "too slow", func(short context.Context) error {
		_, err := s.Save(short, lock, Result{Claim: "disk", Digest: base})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "too slow") {
		t.Errorf("a clone that never ends: %v", err)
	}
	if left := slow.volumes(); len(left) > 0 {
		t.Errorf("it left %+v", left[0].ObjectMeta)
	}
	w.must(lock.Release(t.Context()))
}

// ends calls wait, which waits for what never comes, with times that grow until it has come as far as to say why it ends: a busy
// machine may need long for what goes before. The last error is returned.
func ends(t *testing.T, why string, wait func(ctx context.Context) error) error {
	t.Helper()
	for short := 2 * time.Second; ; short *= 2 {
		ctx, stop := context.WithTimeoutCause(t.Context(), short, errors.New(why))
		err := wait(ctx)
		stop()
		if short > time.Minute || err == nil || strings.Contains(err.Error(), why) {
			return err
		}
	}
}

func lostLock(t *testing.T, w *world) {
	s := w.run("run")
	_, lock := w.takes(s, Query{Key: w.key})
	lock.lost.Store(true)
	w.completes(cdiv1.Succeeded)
	if _, err := s.Save(t.Context(), lock, Result{Claim: "disk", Digest: base}); !errors.Is(err, errLost) {
		t.Errorf("a run without the right to it keeps its result: %v", err)
	}
	if left := w.volumes(); len(left) > 0 {
		t.Errorf("it left %+v", left[0].ObjectMeta)
	}
	w.must(lock.Release(t.Context()))
}

func tooOld(t *testing.T, w *world) {
	w.completes(cdiv1.Succeeded)
	s := w.run("run")
	s.Now = func() time.Time { return time.Now().Add(-2 * time.Hour) }
	_, lock := w.takes(s, Query{Key: w.key})
	saved := w.saves(s, lock)
	entry, lock := w.takes(w.run("new"), Query{Key: w.key, Since: time.Now().Add(-time.Hour)})
	if entry != nil || lock == nil {
		t.Fatalf("%+v is too old and taken", entry)
	}
	newer := w.saves(w.run("new"), lock)
	for since, want := range map[time.Time]string{{}: newer.Name, time.Now().Add(-time.Hour): newer.Name} {
		if entry, _ := w.takes(w.run("any"), Query{Key: w.key, Since: since}); entry == nil || entry.Name != want {
			t.Errorf("since %v: %+v, want %s, not %s", since, entry, want, saved.Name)
		}
	}
}

func otherPlace(t *testing.T, w *world) {
	w.completes(cdiv1.Succeeded)
	s := w.run("run")
	_, lock := w.takes(s, Query{Key: w.key})
	w.saves(s, lock)
	for _, c := range []struct {
		q    Query
		want bool
	}{
		{Query{Class: "fast", Mode: corev1.PersistentVolumeFilesystem}, true},
		{Query{Class: "slow"}, false},
		{Query{Mode: corev1.PersistentVolumeBlock}, false},
	} {
		c.q.Key = w.key
		entry, err := s.Find(t.Context(), c.q)
		if err != nil || (entry != nil) != c.want {
			t.Errorf("%+v: %+v, %v", c.q, entry, err)
		}
	}
}

func deletedUnderRun(t *testing.T, w *world) {
	w.completes(cdiv1.Succeeded)
	s := w.run("run")
	_, lock := w.takes(s, Query{Key: w.key})
	saved := w.saves(s, lock)
	w.must(s.Remove(t.Context(), saved))
	if ok, err := s.Use(t.Context(), saved); ok || err != nil {
		t.Errorf("an entry that is gone: %v, %v", ok, err)
	}
	other := buildEntry(filling{key: w.key, digest: base, source: w.read("disk"), run: s.Run, now: time.Now()})
	other.Name, other.GenerateName = saved.Name, ""
	w.must(w.Create(t.Context(), other))
	if ok, err := s.Use(t.Context(), saved); ok || err != nil {
		t.Errorf("another entry of the name: %v, %v", ok, err)
	}
	if ok, err := s.Use(t.Context(), &Entry{Namespace: w.namespace, Name: other.Name, UID: other.UID}); !ok || err != nil {
		t.Errorf("an entry that is there: %v, %v", ok, err)
	}
}

// Two keys with the same 63 digits are two keys.
func cutKey(t *testing.T, w *world) {
	w.completes(cdiv1.Succeeded)
	s := w.run("run")
	_, lock := w.takes(s, Query{Key: w.key})
	w.saves(s, lock)
	last := w.key[len(w.key)-1:]
	other := w.key[:len(w.key)-1] + map[bool]Key{true: "1", false: "0"}[last == "0"]
	if entry, err := s.Find(t.Context(), Query{Key: other}); entry != nil || err != nil {
		t.Errorf("the entry of %s answers %s: %+v, %v", w.key, other, entry, err)
	}
}

// host makes the pod of a run.
func (w *world) host(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: corev1.PodSpec{
		NodeName: "node", Containers: []corev1.Container{{Name: "step-x", Image: "registry.example.com/guestfs:v1"}, {Name: "sidecar-y", Image: "i"}},
	}}
	w.must(w.Create(w.t.Context(), pod))
	w.reportsImage(pod)
	return pod
}

// reportsImage plays the kubelet: the pod's step runs the image.
func (w *world) reportsImage(pod *corev1.Pod) {
	w.t.Helper()
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "sidecar-y", ImageID: "i@sha256:" + strings.Repeat("0", 64)},
		{Name: "step-x", ImageID: "registry.example.com/guestfs@" + image},
	}
	if err := w.Status().Update(w.t.Context(), pod); err != nil {
		w.t.Errorf("playing the kubelet: %v", err)
	}
}

// plays the kubelet: each worker pod ends in the phase with the report.
func (w *world) plays(phase corev1.PodPhase, r report) {
	w.t.Helper()
	watcher, err := w.Watch(w.t.Context(), &corev1.PodList{}, client.InNamespace(w.namespace), client.MatchingLabels{names.LabelPod: KindWorker})
	w.must(err)
	w.t.Cleanup(watcher.Stop)
	go func() {
		for event := range watcher.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.Status.Phase != corev1.PodPending {
				continue
			}
			message, _ := json.Marshal(r)
			pod.Status.Phase = phase
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(message)}}}}
			if err := w.Status().Update(context.Background(), pod); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				w.t.Errorf("playing the kubelet: %v", err)
			}
			return
		}
	}()
}

func workerReports(t *testing.T, w *world) {
	s := w.run("run")
	w.host("run-pod")
	h, err := s.FindHost(t.Context(), "run-pod", "/usr/bin/slipway")
	w.must(err)
	e := &Entry{Namespace: w.namespace, Name: "step-1", Digest: base}
	for name, c := range map[string]struct {
		phase    corev1.PodPhase
		report   report
		how      string
		poisoned bool
		fails    string
	}{
		"reflink":  {corev1.PodSucceeded, report{How: HowReflink}, HowReflink, false, ""},
		"poisoned": {corev1.PodFailed, report{Poisoned: true, Failure: "got other"}, "", true, "got other"},
		"no space": {corev1.PodFailed, report{Failure: "no space left on device"}, "", false, "no space left"},
	} {
		w.plays(c.phase, c.report)
		done, err := s.Restore(t.Context(), h, e, Target{Claim: "disk"})
		if how := done.How; how != c.how || done.Half || errors.Is(err, ErrPoisoned) != c.poisoned || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
	}
	var left corev1.PodList
	w.must(w.List(t.Context(), &left, client.InNamespace(w.namespace), client.MatchingLabels{names.LabelPod: KindWorker}))
	if len(left.Items) > 0 {
		t.Errorf("%d worker pods stay", len(left.Items))
	}
}

// Who knows nothing of a device takes it for half rewritten.
func workerOnDevice(t *testing.T, w *world) {
	s := w.run("run")
	w.host("run-pod")
	h, err := s.FindHost(t.Context(), "run-pod", "/usr/bin/slipway")
	w.must(err)
	e := &Entry{Namespace: w.namespace, Name: "step-1", Digest: base}
	for name, c := range map[string]struct {
		phase       corev1.PodPhase
		report      report
		half, fails bool
	}{
		"rewritten":        {corev1.PodSucceeded, report{How: HowRewrite}, false, false},
		"poisoned":         {corev1.PodFailed, report{Poisoned: true, Failure: "got other"}, false, true},
		"another size":     {corev1.PodFailed, report{Failure: "the device has 1 bytes"}, false, true},
		"a write failed":   {corev1.PodFailed, report{Half: true, Failure: "input/output error"}, true, true},
		"killed, says nil": {corev1.PodFailed, report{}, true, true},
	} {
		w.plays(c.phase, c.report)
		done, err := s.Restore(t.Context(), h, e, Target{Claim: "disk", Block: true})
		if done.Half != c.half || (err != nil) != c.fails {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
	}
	// One that no node took has written nothing; the node of this one is named by nobody.
	var done Outcome
	err = ends(t, "the time is over", func(ctx context.Context) error {
		done, err = s.Restore(ctx, h, e, Target{Claim: "disk", Block: true})
		return err
	})
	if err == nil || done.Half {
		t.Errorf("a worker that no node takes: %+v, %v", done, err)
	}
}

func refusingStorage(t *testing.T, w *world) {
	watcher, err := w.Watch(t.Context(), &cdiv1.DataVolumeList{}, client.InNamespace(w.namespace))
	w.must(err)
	t.Cleanup(watcher.Stop)
	go func() {
		for event := range watcher.ResultChan() {
			dv, ok := event.Object.(*cdiv1.DataVolume)
			if !ok || event.Type != "ADDED" {
				continue
			}
			for n, said := range []string{"not enough space", "CSI driver does not support clone operation: controller CLONE_VOLUME capability is not reported"} {
				if err := w.Create(context.Background(), provisionerSays(dv, n, said)); err != nil && t.Context().Err() == nil {
					t.Errorf("playing the provisioner: %v", err)
				}
			}
		}
	}()
	s := w.run("run")
	s.Client = losing(w.WithWatch)
	_, lock := w.takes(s, Query{Key: w.key})
	begun := time.Now()
	_, err = s.Save(t.Context(), lock, Result{Claim: "disk", Digest: base})
	if !errors.Is(err, ErrNoClone) || !strings.Contains(err.Error(), "CLONE_VOLUME capability is not reported") {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
	if left := w.volumes(); len(left) > 0 {
		t.Errorf("it left %+v", left[0].ObjectMeta)
	}
	w.must(lock.Release(t.Context()))
}

// losing is a client that loses its first watch for Events at once.
func losing(c client.WithWatch) client.WithWatch {
	var lost atomic.Bool
	return interceptor.NewClient(c, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			if _, events := list.(*corev1.EventList); events && lost.CompareAndSwap(false, true) {
				ended := watch.NewFake()
				ended.Stop()
				return ended, nil
			}
			return c.Watch(ctx, list, options...)
		},
	})
}

// provisionerSays is the event of a provisioner on the claim of a DataVolume.
func provisionerSays(dv *cdiv1.DataVolume, n int, message string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: dv.Namespace, Name: fmt.Sprintf("%s.%d", dv.Name, n)},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: dv.Namespace, Name: dv.Name},
		Type:           corev1.EventTypeWarning, Reason: "ProvisioningFailed", Message: message,
	}
}

func volumeWithoutClass(t *testing.T, w *world) {
	byHand := w.read("disk").DeepCopy()
	byHand.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: "by-hand"}
	byHand.Spec.StorageClassName = new("")
	w.must(w.Create(t.Context(), byHand))
	s := w.run("run")
	_, lock := w.takes(s, Query{Key: w.key})
	if _, err := s.Save(t.Context(), lock, Result{Claim: "by-hand", Digest: base}); !errors.Is(err, ErrNoClone) || !strings.Contains(err.Error(), "has no storage class") {
		t.Error(err)
	}
	if left := w.volumes(); len(left) > 0 {
		t.Errorf("it left %+v", left[0].ObjectMeta)
	}
	w.must(lock.Release(t.Context()))
}

func workerWithoutNode(t *testing.T, w *world) {
	s := w.run("run")
	w.host("run-pod")
	h, err := s.FindHost(t.Context(), "run-pod", "/usr/bin/slipway")
	w.must(err)
	err = ends(t, "the time is over", func(ctx context.Context) error {
		return s.Verify(ctx, h, &Entry{Namespace: w.namespace, Name: "step-1", Digest: base})
	})
	if err == nil || !strings.Contains(err.Error(), "the time is over") {
		t.Errorf("a worker that no node takes: %v", err)
	}
	ended, stopWait := context.WithTimeout(t.Context(), bound)
	defer stopWait()
	var pods corev1.PodList
	w.must(w.List(ended, &pods, client.InNamespace(w.namespace), client.MatchingLabels{names.LabelPod: KindWorker}))
	for n := range pods.Items {
		key := client.ObjectKeyFromObject(&pods.Items[n])
		w.must(await.Object(ended, w, &corev1.PodList{}, key, func(_ *corev1.Pod, exists bool) (bool, error) { return !exists, nil }))
	}
}

func ownPod(t *testing.T, w *world) {
	s := w.run("run")
	w.host("run-pod")
	h, err := s.FindHost(t.Context(), "run-pod", "/usr/bin/slipway")
	if err != nil || h.Image != "registry.example.com/guestfs:v1" || h.ImageDigest != image || h.Program != "/usr/bin/slipway" {
		t.Errorf("%+v, %v", h, err)
	}
	late := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "late"}, Spec: corev1.PodSpec{
		NodeName: "node", Containers: []corev1.Container{{Name: "step-x", Image: "i"}},
	}}
	w.must(w.Create(t.Context(), late))
	time.AfterFunc(time.Second, func() { w.reportsImage(late) })
	if h, err := s.FindHost(t.Context(), "late", "x"); err != nil || h.ImageDigest != image {
		t.Errorf("a pod whose node reports late: %+v, %v", h, err)
	}
	if _, err := s.FindHost(t.Context(), "none", "x"); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is not there: %v", err)
	}
	two := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "two"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "step-x", Image: "i"}, {Name: "step-y", Image: "i"}},
	}}
	w.must(w.Create(t.Context(), two))
	if _, err := s.FindHost(t.Context(), "two", "x"); err == nil || !strings.Contains(err.Error(), "step-x and step-y") {
		t.Errorf("a pod of two steps: %v", err)
	}
}
