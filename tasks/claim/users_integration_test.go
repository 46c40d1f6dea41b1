//go:build integration

package claim

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

func watching(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// launcher makes the pod of a VM that uses the claim disk.
func launcher(t *testing.T, c client.Client, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Finalizers: []string{"test.example.com/hold"},
			Labels: map[string]string{"kubevirt.io": "virt-launcher"}, Annotations: map[string]string{"kubevirt.io/domain": "vm-of-" + name},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "compute", Image: "x"}},
			Volumes: []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
			}}},
		},
	}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// end makes the pod go.
func end(t *testing.T, c client.Client, pod *corev1.Pod) {
	t.Helper()
	if err := c.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := client.IgnoreNotFound(c.Delete(t.Context(), pod, client.GracePeriodSeconds(0))); err != nil {
		t.Fatal(err)
	}
}

func TestWaitingForAClaim(t *testing.T) {
	config := apiserver.Start(t)
	c := watching(t, config)
	log := slog.New(slog.DiscardHandler)
	key := client.ObjectKey{Namespace: "default", Name: "disk"}

	if err := Free(t.Context(), c, log, key); err != nil {
		t.Errorf("a claim that nobody uses: %v", err)
	}
	if err := Free(t.Context(), watching(t, rest.AnonymousClientConfig(config)), log, key); err != nil {
		t.Errorf("without rights: %v", err)
	}
	if err := Free(t.Context(), nil, log, key); err != nil {
		t.Errorf("without the API: %v", err)
	}

	pod := launcher(t, c, "a")
	if err := Free(t.Context(), c, log, key); err == nil || !strings.Contains(err.Error(), "claim disk is in use by VirtualMachine vm-of-a: stop it first") {
		t.Errorf("a claim of a running VM: %v", err)
	}
	if err := Free(t.Context(), c, log, client.ObjectKey{Namespace: "default", Name: "other"}); err != nil {
		t.Errorf("another claim: %v", err)
	}
	for bound := 300 * time.Millisecond; ; bound *= 2 { // until it is enough for the first look
		short, stop := context.WithTimeout(t.Context(), bound)
		err := Await(short, c, log, key)
		stop()
		if errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "still in use by VirtualMachine vm-of-a") {
			break
		}
		if bound > time.Minute {
			t.Fatalf("waiting in vain: %v", err)
		}
	}

	t.Log("waiting until the VM that is being stopped has ended")
	if err := c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	bounded, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	waits := make(chan error, 2)
	go func() { waits <- Free(bounded, c, log, key) }()
	go func() { waits <- Await(bounded, c, log, key) }()
	select {
	case err := <-waits:
		t.Errorf("the wait ended before the VM did: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	end(t, c, pod)
	for range 2 {
		if err := <-waits; err != nil {
			t.Error(err)
		}
	}

	t.Log("a VM that has ended uses nothing, though its pod is there")
	pod = launcher(t, c, "b")
	if err := c.Status().Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Succeeded"}}`))); err != nil {
		t.Fatal(err)
	}
	if err := Free(t.Context(), c, log, key); err != nil {
		t.Errorf("a claim of a VM that has ended: %v", err)
	}
	end(t, c, pod)
}
