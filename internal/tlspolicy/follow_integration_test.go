//go:build integration

package tlspolicy

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestServersFollowTheObjects changes the KubeVirt object and the CDIConfig while programs run.
func TestServersFollowTheObjects(t *testing.T) {
	const crds = "../../controllers/hyperconverged/components/crds/"
	config := apiserver.Start(t, crds+"kubevirt.io_kubevirts.yaml", crds+"cdi.kubevirt.io_cdiconfigs.yaml")
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme.New(), Metrics: server.Options{BindAddress: "0"}})
	must(t, err)
	virt, data := &Policy{}, &Policy{}
	must(t, virt.FollowKubeVirt(mgr))
	must(t, data.FollowCDI(mgr))
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
	speaks := func(policy *Policy, want uint16) {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			settings := policy.current.Load()
			if settings == nil && want == 0 || settings != nil && settings.MinVersion == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("it speaks %v, want %s", settings.Args(), tls.VersionName(want))
			}
		}
	}
	patch(kv, `{"spec":{"configuration":{"tlsConfiguration":{"minTLSVersion":"VersionTLS13"}}}}`)
	speaks(virt, tls.VersionTLS13)
	speaks(data, 0)
	patch(cdi, `{"spec":{"tlsSecurityProfile":{"type":"Custom","custom":{"minTLSVersion":"VersionTLS11","ciphers":["ECDHE-ECDSA-AES128-SHA"]}}}}`)
	speaks(data, tls.VersionTLS11)
	patch(kv, `{"spec":{"configuration":{"tlsConfiguration":null}}}`)
	speaks(virt, 0)
	must(t, c.Delete(t.Context(), cdi))
	speaks(data, 0)
}
