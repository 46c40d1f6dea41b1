//go:build integration

package subresource

import (
	"context"
	"maps"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// TestFrontProxyIsFollowed begins with an API server that was not told to aggregate.
func TestFrontProxyIsFollowed(t *testing.T) {
	core, err := corev1client.NewForConfig(apiserver.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &frontProxy{configMaps: core.RESTClient(), log: klog.Background()}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	authority := issue(t, "front proxies", nil)
	proxy := issue(t, "front-proxy-client", authority)
	answers := func() string {
		user, err := p.identify(asked(proxy))
		if err != nil {
			return err.Error()
		}
		return user.Username
	}
	eventually := func(want, what string) {
		t.Helper()
		gomega.NewWithT(t).Eventually(answers, "5m", "100ms").Should(gomega.ContainSubstring(want), what)
	}
	eventually("--requestheader-client-ca-file", "it says what the cluster lacks")

	configMaps := core.ConfigMaps(metav1.NamespaceSystem)
	gomega.NewWithT(t).Eventually(func() error { // the API server makes it in its own time, and writes it, too
		configMap, err := configMaps.Get(t.Context(), proxyConfigMap, metav1.GetOptions{})
		if err != nil {
			return err
		}
		maps.Copy(configMap.Data, configured(authority).Data)
		_, err = configMaps.Update(t.Context(), configMap, metav1.UpdateOptions{})
		return err
	}, "5m", "100ms").Should(gomega.Succeed(), "the front proxy is configured")
	eventually("jane", "it trusts the front proxy that was configured")

	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: proxyConfigMap}}
	if _, err := configMaps.Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("--requestheader-client-ca-file", "it trusts nobody any more")
}
