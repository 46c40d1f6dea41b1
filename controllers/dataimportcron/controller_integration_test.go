//go:build integration

package dataimportcron_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/dataimportcron"
	"github.com/slipway-vm/slipway/controllers/datasource"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

func TestMain(m *testing.M) { os.Exit(dataimportcron.Server.Run(m)) }

// world is an API server with the controllers, an image server, and a clock. The tests play kubelet, storage and
// garbage collector.
type world struct {
	client.Client
	t         *testing.T
	namespace string
	server    *httptest.Server
	config    *rest.Config
	stop      func()

	mu      sync.Mutex
	now     time.Time
	version string // of the image; empty for a server that fails
	touched int
}

func (w *world) time() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) ServeHTTP(answer http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.version == "" {
		answer.WriteHeader(http.StatusBadGateway)
		return
	}
	answer.Header().Set("Etag", `"`+w.version+`"`)
	_, _ = answer.Write([]byte("x"))
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: time.Now(), version: "one"}
	w.config = dataimportcron.Server.Start(t, apiserver.Only(t, "../hyperconverged/components/crds", "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	w.Client = apiserver.Player(t, w.config)
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "images-"}}
	w.must(w.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	w.begin()
	t.Cleanup(func() { w.stop() })
	return w
}

// begin starts the controllers for the test's namespace, which stop ends.
func (w *world) begin() {
	w.t.Helper()
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(time.Duration(-1)),
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}, "slipway": {}}},
	})
	w.must(err)
	w.must(dataimportcron.SetupAnywhere(mgr, "slipway", w.time))
	w.must(datavolume.SetupWithManager(mgr, datavolume.Options{ImporterImage: "registry.local/slipway:test"}))
	w.must(datasource.SetupWithManager(mgr, datasource.Options{}))
	w.must(datasource.SetupSnapshots(mgr, mgr))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		w.stop = func() {}
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// until waits for what must come soon, and shows what is there when it does not.
func (w *world) until(what string, check func() bool) {
	w.t.Helper()
	deadline := time.After(5 * time.Minute)
	for !check() {
		select {
		case <-deadline:
			w.t.Fatalf("it did not happen that %s; there is\n%s", what, w.all())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (w *world) all() string {
	var text strings.Builder
	for _, list := range []client.ObjectList{&cdiv1.DataImportCronList{}, &cdiv1.DataSourceList{}, &cdiv1.DataVolumeList{}, &corev1.PersistentVolumeClaimList{}, &snapshotv1.VolumeSnapshotList{}} {
		err := w.List(w.t.Context(), list, client.InNamespace(w.namespace))
		data, encodeErr := yaml.Marshal(list)
		fmt.Fprintf(&text, "--- %T %v %v\n%s", list, err, encodeErr, data)
	}
	return text.String()
}

// create makes a DataImportCron that leads the DataSource golden.
func (w *world) create(name string, change func(*cdiv1.DataImportCron)) {
	w.t.Helper()
	cron := &cdiv1.DataImportCron{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: cdiv1.DataImportCronSpec{Schedule: "@every 1h", ManagedDataSource: "golden", Template: cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: w.server.URL}},
			PVC: &corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}}},
	}
	if change != nil {
		change(cron)
	}
	w.must(w.Create(w.t.Context(), cron))
}

func (w *world) cron(name string) *cdiv1.DataImportCron {
	w.t.Helper()
	cron := &cdiv1.DataImportCron{}
	w.must(w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, cron))
	return cron
}

// reason is that of a condition, with its status.
func (w *world) reason(name string, kind cdiv1.DataImportCronConditionType) string {
	w.t.Helper()
	for _, c := range w.cron(name).Status.Conditions {
		if c.Type == kind {
			return c.Reason + " " + string(c.Status)
		}
	}
	return ""
}

// later lets time go by while the server has version, and wakes the controller.
func (w *world) later(d time.Duration, version, name string) {
	w.t.Helper()
	w.mu.Lock()
	w.now, w.version = w.now.Add(d), version
	w.touched++
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"test/touched":"%d"}}}`, w.touched)
	w.mu.Unlock()
	w.must(w.Patch(w.t.Context(), w.cron(name), client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// importing waits for an import other than those before, and returns its DataVolume.
func (w *world) importing(name string, before ...string) *cdiv1.DataVolume {
	w.t.Helper()
	dv := &cdiv1.DataVolume{}
	w.until("an import begins", func() bool {
		imports := w.cron(name).Status.CurrentImports
		if len(imports) == 0 {
			return false
		}
		*dv = cdiv1.DataVolume{}
		err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: imports[0].DataVolumeName}, dv)
		return err == nil && dv.DeletionTimestamp == nil && !slices.Contains(before, string(dv.UID))
	})
	return dv
}

// end plays storage and kubelet: the import of dv ends with result.
func (w *world) end(dv string, result transfer.Result) {
	w.t.Helper()
	claim, pod := &corev1.PersistentVolumeClaim{}, &corev1.Pod{}
	w.until("the claim of "+dv+" exists", func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: dv}, claim) == nil
	})
	claim.Status.Phase = corev1.ClaimBound
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.must(w.Status().Update(w.t.Context(), claim))
	w.until("the importer of "+dv+" exists", func() bool {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "importer-" + dv}, pod) == nil
	})
	message, err := result.Encode()
	w.must(err)
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(message)}}
	pod.Status.Phase = corev1.PodSucceeded
	status := corev1.ContainerStatus{Name: "importer", State: ended}
	if result.Reason != "" {
		ended.Terminated.ExitCode = 1
		pod.Status.Phase, status.State, status.LastTerminationState = corev1.PodRunning, corev1.ContainerState{}, ended
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	w.must(w.Status().Update(w.t.Context(), pod))
}

// source is the claim that the DataSource golden names.
func (w *world) source() (*cdiv1.DataSource, string) {
	source := &cdiv1.DataSource{}
	if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "golden"}, source); err != nil || source.Spec.Source.PVC == nil {
		return source, ""
	}
	return source, source.Spec.Source.PVC.Name
}

// collect plays the garbage collector for what was of dv.
func (w *world) collect(dv string) {
	w.t.Helper()
	for _, object := range []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.Pod{}} {
		object.SetNamespace(w.namespace)
		object.SetName(dv)
		if _, isPod := object.(*corev1.Pod); isPod {
			object.SetName("importer-" + dv)
		}
		err := w.Delete(w.t.Context(), object, client.GracePeriodSeconds(0))
		w.must(client.IgnoreNotFound(err))
		w.must(client.IgnoreNotFound(w.Patch(w.t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
	}
}

func (w *world) gone(dv string) bool {
	err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: dv}, &cdiv1.DataVolume{})
	return apierrors.IsNotFound(err)
}

func TestTheDataSourceFollowsTheImage(t *testing.T) {
	w := start(t)
	w.create("cron", func(cron *cdiv1.DataImportCron) {
		cron.Labels = map[string]string{"instancetype.kubevirt.io/default-preference": "debian"}
		cron.Spec.ImportsToKeep = new(int32(1))
		cron.Spec.RetentionPolicy = new(cdiv1.DataImportCronRetainNone)
	})
	first := w.importing("cron")
	cron := w.cron("cron")
	digest := cron.Annotations[dataimportcron.AnnotationDesired]
	if first.Name != "golden-"+digest[7:19] || first.Labels[dataimportcron.LabelCron] != "cron" || cron.Annotations[dataimportcron.AnnotationNextPoll] == "" || cron.Status.LastExecutionTimestamp == nil {
		t.Errorf("the import %s of digest %q is %+v; the DataImportCron is %+v", first.Name, digest, first.ObjectMeta, cron.ObjectMeta)
	}
	if source, claim := w.source(); source.Labels[dataimportcron.LabelCron] != "cron" || claim != "" {
		t.Errorf("the DataSource names %q before anything is imported: %+v", claim, source.ObjectMeta)
	}
	w.end(first.Name, transfer.Result{Digest: "slipway1:00"})
	w.until("the DataSource names the image", func() bool { _, claim := w.source(); return claim == first.Name })
	w.until("the image is up to date", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "UpToDate True" })
	source, _ := w.source()
	if source.Labels["instancetype.kubevirt.io/default-preference"] != "debian" || len(source.OwnerReferences) != 1 || source.OwnerReferences[0].UID != cron.UID {
		t.Errorf("the DataSource is %+v", source.ObjectMeta)
	}
	if status := w.cron("cron").Status; status.LastImportedPVC.Name != first.Name || status.LastImportTimestamp == nil || *status.SourceFormat != "pvc" {
		t.Errorf("the status is %+v", status)
	}

	w.later(2*time.Hour, "two", "cron")
	second := w.importing("cron", string(first.UID))
	if _, claim := w.source(); claim != first.Name || w.reason("cron", cdiv1.DataImportCronUpToDate) == "UpToDate True" {
		t.Errorf("the DataSource names %s while another image is imported", claim)
	}
	w.end(second.Name, transfer.Result{Digest: "slipway1:01"})
	w.until("the DataSource names the new image", func() bool { _, claim := w.source(); return claim == second.Name })
	w.until("the old image is gone", func() bool { return w.gone(first.Name) })
	w.collect(first.Name)

	w.later(2*time.Hour, "", "cron")
	w.until("the poll is tried again soon", func() bool {
		next, err := time.Parse(time.RFC3339, w.cron("cron").Annotations[dataimportcron.AnnotationNextPoll])
		return err == nil && next.Sub(w.time()) <= time.Minute && next.After(w.time().Add(-time.Second))
	})
	if got := w.reason("cron", cdiv1.DataImportCronUpToDate); got != "UpToDate True" {
		t.Errorf("a poll that failed makes the image %s", got)
	}
	w.later(2*time.Minute, "one", "cron") // the image of before comes back
	third := w.importing("cron", string(first.UID), string(second.UID))
	if third.Name != first.Name {
		t.Errorf("the same image is imported as %s and as %s", first.Name, third.Name)
	}
}

func TestAnImportThatFailsIsTriedAgain(t *testing.T) {
	w := start(t)
	w.create("cron", nil)
	first := w.importing("cron")
	w.end(first.Name, transfer.Failed(transfer.Errorf(transfer.WrongFormat, "no disk")))
	w.until("the failure is told", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "ImportFailed False" })
	w.later(2*time.Hour, "one", "cron")
	w.until("the import is given up", func() bool {
		dv := &cdiv1.DataVolume{}
		err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: first.Name}, dv)
		return apierrors.IsNotFound(err) || dv.UID != first.UID
	})
	w.collect(first.Name)
	again := w.importing("cron", string(first.UID))
	w.end(again.Name, transfer.Result{Digest: "slipway1:00"})
	w.until("the DataSource names the image", func() bool { _, claim := w.source(); return claim == again.Name })

	w.create("rival", nil)
	w.until("a second one for the DataSource is told", func() bool {
		return w.reason("rival", cdiv1.DataImportCronUpToDate) == "ErrDataSourceAlreadyManaged False"
	})
	if len(w.cron("rival").Status.CurrentImports) > 0 {
		t.Error("the second one imports")
	}
	w.must(w.Delete(t.Context(), w.cron("cron")))
	w.until("the second one leads the DataSource", func() bool {
		source, _ := w.source()
		return source.Labels[dataimportcron.LabelCron] == "rival"
	})
}

func TestADataSourceOfSomebodyElseIsLeftAlone(t *testing.T) {
	w := start(t)
	w.must(w.Create(t.Context(), &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Name: "golden", Namespace: w.namespace},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "theirs", Namespace: w.namespace}}},
	}))
	w.create("cron", nil)
	dv := w.importing("cron")
	w.end(dv.Name, transfer.Result{Digest: "slipway1:00"})
	w.until("the image is imported", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "UpToDate True" })
	if _, claim := w.source(); claim != "theirs" {
		t.Errorf("the DataSource names %s", claim)
	}
}
