package progress

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-vm/slipway/internal/transfer"
)

func TestProgressIsHeardAndFollowedOverARestart(t *testing.T) {
	lines := make(chan transfer.Progress)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.(http.Flusher).Flush() // it has answered, however long the next line takes
		select {
		case line, ok := <-lines:
			if ok {
				_ = json.NewEncoder(w).Encode(line) // one line, then the importer dies
			}
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)

	l, news := begin(t)
	dv := types.NamespacedName{Namespace: "ns", Name: "disk"}
	pod := podAt(server, "pod")
	l.Follow(dv, pod)
	says := func(progress transfer.Progress) {
		t.Helper()
		lines <- progress
		for end := time.After(5 * time.Minute); ; {
			select {
			case owner := <-news:
				if owner != dv {
					t.Errorf("there is news of %s", owner)
				}
			case <-end:
				t.Fatal("there is no news")
			}
			if got, _ := l.Latest(dv, pod); got == progress { // else the news is of an attempt before that, which has failed
				return
			}
		}
	}
	for n := int64(1); n <= 2; n++ {
		says(transfer.Progress{Done: n * 25, Total: 100})
		if got := heard(l, dv, pod); got != strings.TrimSpace([]string{"", "25.00%", "50.00%"}[n]) {
			t.Errorf("heard %s", got)
		}
	}
	for _, reason := range []transfer.Reason{transfer.InvalidImage, transfer.NoSpace} { // of two uploads, one after the other
		says(transfer.Progress{Reason: reason})
		if got, _ := l.Latest(dv, pod); got.Reason != reason {
			t.Errorf("heard %+v, want %s", got, reason)
		}
	}
	if !l.Follows(dv, "pod") {
		t.Error("the pod is not followed any more")
	}
	close(lines)
	l.Stop(dv)
	if l.Follows(dv, "pod") {
		t.Error("the pod is still followed")
	}
}

// begin returns listeners that run until the test ends, and of which owners there is news.
func begin(t *testing.T) (*Listeners, chan types.NamespacedName) {
	t.Helper()
	news := make(chan types.NamespacedName, 64)
	l := New(func(_ context.Context, owner types.NamespacedName) { news <- owner })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- l.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l, news
}

// heard is what pod said last, in per cent.
func heard(l *Listeners, owner types.NamespacedName, pod *corev1.Pod) string {
	progress, _ := l.Latest(owner, pod)
	return progress.Percent()
}

// podAt is a pod that tells of its progress where server is.
func podAt(server *httptest.Server, uid types.UID) *corev1.Pod {
	container := corev1.Container{}
	Serve(&container, "token")
	container.Ports[0].ContainerPort = int32(server.Listener.Addr().(*net.TCPAddr).Port)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
		Status:     corev1.PodStatus{PodIP: "127.0.0.1"},
	}
}

// TestAnOwnerOfSeveralPodsFollowsThemUntilTheyGo has one owner with two pods, and then with another two.
func TestAnOwnerOfSeveralPodsFollowsThemUntilTheyGo(t *testing.T) {
	gone := make(chan struct{}, 64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(transfer.Progress{Done: 1, Total: 4})
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	t.Cleanup(server.Close)
	l, news := begin(t)
	vm, other := types.NamespacedName{Namespace: "ns", Name: "vm"}, types.NamespacedName{Namespace: "ns", Name: "other"}
	one, two, three, silent := podAt(server, "1"), podAt(server, "2"), podAt(server, "3"), podAt(server, "4")
	silent.Spec.Containers[0].Ports = nil

	l.Follow(vm, one, two, silent)
	says := func(pods ...*corev1.Pod) {
		t.Helper()
		for _, pod := range pods {
			for heard(l, vm, pod) != "25.00%" { // an attempt before that may have failed, which is news as well
				select {
				case <-news:
				case <-time.After(5 * time.Minute):
					t.Fatalf("nothing is heard of pod %s", pod.UID)
				}
			}
		}
	}
	says(one, two)
	if !l.Follows(vm, one.UID) || !l.Follows(vm, two.UID) || l.Follows(vm, silent.UID) || l.Follows(other, one.UID) {
		t.Errorf("followed are %v", l.active)
	}
	l.Follow(vm, two, three)
	<-gone // the stream of the first
	says(two, three)
	if l.Follows(vm, one.UID) || !l.Follows(vm, two.UID) || !l.Follows(vm, three.UID) {
		t.Errorf("followed are %v", l.active)
	}
	l.Stop(vm)
	for range 2 {
		<-gone
	}
	if len(l.active) > 0 {
		t.Errorf("left are %v", l.active)
	}
}
