//go:build integration

package datavolume_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	nethttp "net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-vm/slipway/controllers/cached"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// counter counts the writes of a DataVolume's status on their way to the API server.
type counter struct {
	to nethttp.RoundTripper

	mu    sync.Mutex
	times int
}

// RoundTrip counts and passes on.
func (c *counter) RoundTrip(request *nethttp.Request) (*nethttp.Response, error) {
	if request.Method != nethttp.MethodGet && strings.Contains(request.URL.Path, "/datavolumes/") && strings.HasSuffix(request.URL.Path, "/status") {
		c.mu.Lock()
		c.times++
		c.mu.Unlock()
	}
	return c.to.RoundTrip(request)
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times
}

// importerAddress is where the importer of the test tells of its progress: an address of this machine that nobody else uses.
const importerAddress = "127.99.41.7"

// tell plays an importer that is a little further each time.
func tell(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(importerAddress, strconv.Itoa(transfer.ProgressPort)))
	if err != nil {
		t.Fatal(err)
	}
	server := &nethttp.Server{ReadHeaderTimeout: time.Minute, Handler: nethttp.HandlerFunc(func(answer nethttp.ResponseWriter, request *nethttp.Request) {
		for done := int64(0); ; done += 10 {
			if err := json.NewEncoder(answer).Encode(transfer.Progress{Done: done, Total: 1000}); err != nil {
				return
			}
			answer.(nethttp.Flusher).Flush()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-request.Context().Done():
				return
			}
		}
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// TestAnImportOfSecondsWritesItsStatusOnceForEachPhase plays scheduler, storage and kubelet as they are in an import of seconds, in which no
// time goes by for the controller: what is written is what is never held back.
func TestAnImportOfSecondsWritesItsStatusOnceForEachPhase(t *testing.T) {
	config := apiserver.Start(t, apiserver.Only(t, crds, "cdi.kubevirt.io", "snapshot.storage.k8s.io")...)
	w := newWorld(t, apiserver.Player(t, config))
	w.must(w.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.com/fast"}))
	tell(t)
	counted := &counter{}
	config = rest.CopyConfig(config)
	config.Wrap(func(to nethttp.RoundTripper) nethttp.RoundTripper {
		counted.to = to
		return counted
	})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cached.Options(installed), GracefulShutdownTimeout: new(time.Duration(-1)),
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)},
	})
	w.must(err)
	now := time.Now()
	w.must(datavolume.SetupAt(mgr, datavolume.Options{ImporterImage: "registry.local/slipway:test", Namespace: installed}, func() time.Time { return now }))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	states := watched(t, w)
	w.create("disk", "fast", http(), nil)
	w.phase("disk", cdiv1.ImportScheduled)
	w.until("the pod is there", func() bool { return w.pod("disk").UID != "" })
	w.must(w.condition("disk", corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "pod has unbound immediate PersistentVolumeClaims"}))
	pause()
	w.bind("disk")
	pause()
	w.must(w.condition("disk", corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}))
	pause()
	pod := w.pod("disk")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "importer", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	w.must(w.Status().Update(t.Context(), pod))
	pause()
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, importerAddress, []corev1.PodIP{{IP: importerAddress}}
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	w.must(w.Status().Update(t.Context(), pod))
	w.phase("disk", cdiv1.ImportInProgress)
	for range 5 { // while it tells of its progress
		pause()
	}
	w.play("disk", corev1.PodSucceeded, 0, &transfer.Result{Digest: "slipway1:00", DiskSize: 1 << 30})
	w.phase("disk", cdiv1.Succeeded)
	pause()

	seen := states()
	for _, state := range seen {
		t.Log(state)
	}
	var phases []string
	for _, state := range seen {
		phase, _, _ := strings.Cut(state, " ")
		phases = append(phases, phase)
	}
	want := []string{"ImportScheduled", "ImportInProgress", "Succeeded"}
	if !slices.Equal(phases, want) {
		t.Errorf("a watcher sees %v, want %v", phases, want)
	}
	if got := counted.count(); got != len(want) {
		t.Errorf("the status is written %d times, want %d", got, len(want))
	}
}

// pause lets the controller see what was played.
func pause() { <-time.After(300 * time.Millisecond) }

// condition sets a condition of the importer pod of a DataVolume.
func (w *world) condition(dv string, c corev1.PodCondition) error {
	pod := w.pod(dv)
	pod.Status.Conditions = []corev1.PodCondition{c}
	return w.Status().Update(w.t.Context(), pod)
}

// watched begins to watch the case's DataVolumes; what it returns ends that, and says which statuses were seen, one after the other.
func watched(t *testing.T, w *world) func() []string {
	t.Helper()
	var mu sync.Mutex
	var states []string
	var now cdiv1.DataVolumeList
	w.must(w.List(t.Context(), &now, client.InNamespace(w.namespace)))
	events := apiserver.Watch(t, w.Client.(client.WithWatch), &now, client.InNamespace(w.namespace))
	go func() {
		for event := range events.ResultChan() {
			dv, is := event.Object.(*cdiv1.DataVolume)
			if !is || dv.Status.Phase == "" {
				continue
			}
			state := fmt.Sprintf("%s progress %s", dv.Status.Phase, dv.Status.Progress)
			for _, c := range dv.Status.Conditions {
				state += fmt.Sprintf(", %s %s %s %s", c.Type, c.Status, c.Reason, c.Message)
			}
			mu.Lock()
			if len(states) == 0 || states[len(states)-1] != state { // else it is not the status that has changed
				states = append(states, state)
			}
			mu.Unlock()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(states)
	}
}
