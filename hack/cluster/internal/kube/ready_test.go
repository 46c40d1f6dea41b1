package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestPodAnswersItsProbe(t *testing.T) {
	healthy := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !healthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	pod := fmt.Sprintf(`{"spec":{"containers":[{"name":"c","ports":[{"name":"probes","containerPort":%s}],"readinessProbe":{"httpGet":{"path":"/r","port":"probes"}}}]},
		"status":{"phase":"Running","podIP":"127.0.0.1"}}`, address.Port())
	for deadline := time.Now().Add(3 * time.Minute); ; { // a probe has a second, which a busy machine may need longer for
		why := notAnswering(t, pod)
		if why == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a pod that answers is not ready: %s", why)
		}
	}
	healthy = false
	if why := notAnswering(t, pod); why != "readiness probe fails" {
		t.Errorf("a pod that fails its probe: %q", why)
	}
}

func TestPodSaysWhyItDoesNotRun(t *testing.T) {
	for text, want := range map[string]string{
		`{"status":{"phase":"Pending","containerStatuses":[{"state":{"waiting":{"reason":"ErrImageNeverPull","message":"no image"}}}]}}`: "ErrImageNeverPull: no image",
		`{"status":{"phase":"Pending"}}`:   "no address",
		`{"status":{"phase":"Succeeded"}}`: "",
		`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Running"}}`: "",
	} {
		if why := notAnswering(t, text); why != want {
			t.Errorf("%s: %q, want %q", text, why, want)
		}
	}
}

func notAnswering(t *testing.T, text string) string {
	t.Helper()
	var p Pod
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p.notAnswering(t.Context())
}

func TestStatusErrorTakesTheServersMessage(t *testing.T) {
	err := fmt.Errorf("GET: %w", newStatusError(404, []byte(`{"kind":"Status","message":"nodes \"x\" not found"}`)))
	if !NotFound(err) || !strings.Contains(err.Error(), `nodes "x" not found`) {
		t.Errorf("error %v", err)
	}
}
