//go:build integration

package verbosity

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
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

// TestAPartFollowsCDI changes the CDIConfig and the KubeVirt object while a program runs of which a part does CDI's work.
func TestAPartFollowsCDI(t *testing.T) {
	const crds = "../../controllers/hyperconverged/components/crds/"
	config := apiserver.Start(t, crds+"kubevirt.io_kubevirts.yaml", crds+"cdi.kubevirt.io_cdiconfigs.yaml")
	whole := New(2)
	part := whole.Part()
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme.New(), Logger: whole.Logger(), Metrics: server.Options{BindAddress: "0"}})
	must(t, err)
	must(t, whole.Follow(mgr, Controller))
	must(t, part.FollowCDI(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	must(t, err)
	kv, cdi := &virtv1.KubeVirt{}, &cdiv1.CDIConfig{}
	kv.Namespace, kv.Name, cdi.Name = "default", "kv", "config"
	must(t, c.Create(t.Context(), kv))
	must(t, c.Create(t.Context(), cdi))
	patch := func(object client.Object, with string) {
		t.Helper()
		must(t, c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(with))))
	}
	log := func(level *Level, want int) {
		t.Helper()
		logger := level.Logger()
		for deadline := time.Now().Add(3 * time.Minute); !logger.V(want).Enabled() || logger.V(want+1).Enabled(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the level does not become %d", want)
			}
		}
	}
	patch(kv, `{"spec":{"configuration":{"developerConfiguration":{"logVerbosity":{"virtController":4}}}}}`)
	log(part, 4)
	patch(cdi, `{"spec":{"logVerbosity":0}}`)
	log(part, 0)
	log(whole, 4)
	must(t, c.Delete(t.Context(), cdi))
	log(part, 4)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
