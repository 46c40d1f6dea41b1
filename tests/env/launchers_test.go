package env

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/internal/names"
)

func TestADumpHasTheLogsOfLaunchersThatAreGone(t *testing.T) {
	served := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/tests/pods/gone/log" || r.URL.Query().Get("follow") != "true" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(strings.Repeat("early\n", keptLog) + "QEMU was ended\n"))
		close(served)
	}))
	defer server.Close()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Client: fake.NewClientBuilder().Build(), Kube: kube, launchers: &sync.Map{}}
	stop := c.FollowLaunchers(t.Context(), "tests")
	found, _ := c.launchers.Load("tests")
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID, pod.Labels = "tests", "gone", "1", map[string]string{"kubevirt.io": "virt-launcher"}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: names.ComputeContainer}}
	other := pod.DeepCopy()
	other.Name, other.UID, other.Labels = "other", "2", nil
	waiting := pod.DeepCopy()
	waiting.Name, waiting.UID = "waiting", "3"
	pod.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
	for _, p := range []*corev1.Pod{other, waiting, pod} {
		if err := c.Client.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for asked := false; !asked; { // the fake's watch tells only of what comes after its start
		if err := c.Client.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		select {
		case <-served:
			asked = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	var out strings.Builder
	for tick := time.Tick(time.Millisecond); !strings.Contains(out.String(), "QEMU was ended"); <-tick {
		out.Reset()
		c.dumpGone(&out, "tests", nil)
	}
	if got := out.String(); !strings.HasPrefix(got, "--- log of tests/gone compute, which is gone\n") || strings.Count(got, "\n") != logLines+1 || !strings.HasSuffix(got, "early\n    QEMU was ended\n") {
		t.Errorf("printed %q", got)
	}
	out.Reset()
	if c.dumpGone(&out, "tests", []corev1.Pod{*pod}); out.Len() > 0 {
		t.Errorf("of a pod that is there: %q", out.String())
	}
	if kept := len(found.(*launchers).logs[pod.UID].end); kept > keptLog {
		t.Errorf("%d bytes are kept", kept)
	}
	stop()
	if c.dumpGone(&out, "tests", nil); out.Len() > 0 {
		t.Errorf("after the end: %q", out.String())
	}
}
