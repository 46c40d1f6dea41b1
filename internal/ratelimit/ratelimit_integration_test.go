//go:build integration

package ratelimit

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestRequestsFollowTheObject makes requests of an API server while the KubeVirt object says how many, and when it says so no more.
func TestRequestsFollowTheObject(t *testing.T) {
	config := apiserver.Start(t, "../../controllers/hyperconverged/components/crds/kubevirt.io_kubevirts.yaml")
	config.QPS = -1
	user, err := client.New(rest.CopyConfig(config), client.Options{Scheme: scheme.New()})
	must(t, err)
	limiter := New(Rate{})
	config.RateLimiter = limiter
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme.New(), Metrics: server.Options{BindAddress: "0"}})
	must(t, err)
	must(t, limiter.Follow(mgr, Handler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	kv := &virtv1.KubeVirt{}
	kv.Namespace, kv.Name = "default", "kv"
	must(t, user.Create(t.Context(), kv))
	say := func(what string) {
		t.Helper()
		patch := `{"spec":{"configuration":{"handlerConfiguration":` + what + `}}}`
		must(t, user.Patch(t.Context(), kv, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	becomes := func(want float32) {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); limiter.QPS() != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the rate does not become %v", want)
			}
		}
	}
	// Two kinds have clients of their own, which share the rate.
	takes := func(requests int) time.Duration {
		t.Helper()
		began := time.Now()
		for i := range requests {
			var list client.ObjectList = &corev1.NamespaceList{}
			if i%2 == 0 {
				list = &corev1.NodeList{}
			}
			must(t, mgr.GetAPIReader().List(t.Context(), list))
		}
		return time.Since(began)
	}
	say(`{"restClient":{"rateLimiter":{"tokenBucketRateLimiter":{"qps":5,"burst":2}}}}`)
	becomes(5)
	takes(2) // what may be at once
	if took := takes(10); took < 1900*time.Millisecond {
		t.Errorf("ten requests took %s with five a second", took)
	}
	say(`null`)
	becomes(-1)
	if took := takes(50); took > 9*time.Second {
		t.Errorf("fifty requests took %s without a limit", took)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
