package datavolume

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
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
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
	defer server.Close()

	l := newListeners()
	l.port = server.Listener.Addr().(*net.TCPAddr).Port
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Start(ctx) }()
	dv := types.NamespacedName{Namespace: "ns", Name: "disk"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: transfer.EnvToken, Value: "token"}}}}},
		Status:     corev1.PodStatus{PodIP: "127.0.0.1"},
	}
	l.follow(dv, pod)
	says := func(progress transfer.Progress) {
		t.Helper()
		lines <- progress
		for end := time.After(5 * time.Minute); ; {
			select {
			case event := <-l.changed:
				if event.Object.GetName() != "disk" {
					t.Errorf("event for %s", event.Object.GetName())
				}
			case <-end:
				t.Fatal("no event")
			}
			if got, _ := l.latest(pod); got == progress { // else the event is of an attempt before that, which has failed
				return
			}
		}
	}
	for n := int64(1); n <= 2; n++ {
		says(transfer.Progress{Done: n * 25, Total: 100})
		if got := heard(l, pod); got != strings.TrimSpace([]string{"", "25.00%", "50.00%"}[n]) {
			t.Errorf("heard %s", got)
		}
	}
	for _, reason := range []transfer.Reason{transfer.InvalidImage, transfer.NoSpace} { // of two uploads, one after the other
		says(transfer.Progress{Reason: reason})
		if got, _ := l.latest(pod); got.Reason != reason {
			t.Errorf("heard %+v, want %s", got, reason)
		}
	}
	if !l.follows(dv, "pod") {
		t.Error("the pod is not followed any more")
	}
	close(lines)
	l.stop(dv)
	if l.follows(dv, "pod") {
		t.Error("the pod is still followed")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// heard is what pod said last, in per cent.
func heard(l *listeners, pod *corev1.Pod) string {
	progress, _ := l.latest(pod)
	return progress.Percent()
}

func TestAnUploadServerTellsOfItsProgressElsewhere(t *testing.T) {
	l := newListeners()
	data := input{Upload: &uploadInput{Secret: "secret", Authority: "1"}}
	data.DataVolume.Name = "disk"
	data.DataVolume.Spec.Storage = &cdiv1.StorageSpec{}
	build := func(in *uploadInput) *corev1.Pod {
		return buildPod(podInput{DataVolume: &data.DataVolume, Claim: &corev1.PersistentVolumeClaim{}, Upload: in})
	}
	importing, waiting := l.portOf(build(nil)), l.portOf(build(data.Upload))
	if importing != transfer.ProgressPort || waiting != upload.ServerProgressPort || waiting == upload.ServerPort {
		t.Errorf("an importer's is %d, an upload server's %d", importing, waiting)
	}
}
