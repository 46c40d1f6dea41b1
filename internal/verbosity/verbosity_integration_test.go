//go:build integration

package verbosity

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestAComponentFollowsTheObject changes the object as virtctl does, beside the operator, who applies what is his.
func TestAComponentFollowsTheObject(t *testing.T) {
	config := apiserver.Start(t, "../../controllers/hyperconverged/components/crds/kubevirt.io_kubevirts.yaml")
	level := New(2)
	logger := level.Logger()
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme.New(), Logger: logger, Metrics: server.Options{BindAddress: "0"}})
	must(t, err)
	must(t, level.Follow(mgr, Handler("node1")))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()

	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	must(t, err)
	operator := func() {
		t.Helper()
		kv := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"configuration": map[string]any{"developerConfiguration": map[string]any{}},
		}}}
		kv.SetGroupVersionKind(virtv1.KubeVirtGroupVersionKind)
		kv.SetNamespace("default")
		kv.SetName("kv")
		must(t, apply.Object(t.Context(), c, kv, names.ManagerOperator))
	}
	operator()
	virtctl := func(levels string) {
		t.Helper()
		kv := &virtv1.KubeVirt{}
		kv.Namespace, kv.Name = "default", "kv"
		patch := `{"spec":{"configuration":{"developerConfiguration":{"logVerbosity":` + levels + `}}}}`
		must(t, c.Patch(t.Context(), kv, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	logs := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); !logger.V(want).Enabled() || logger.V(want+1).Enabled(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the level does not become %d", want)
			}
		}
	}
	logs(2)
	virtctl(`{"virtHandler":5}`)
	logs(5)
	virtctl(`{"nodeVerbosity":{"node1":7}}`)
	logs(7)
	operator()
	virtctl(`{"nodeVerbosity":null}`)
	logs(5)
	virtctl(`{"virtHandler":null}`)
	logs(2)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
