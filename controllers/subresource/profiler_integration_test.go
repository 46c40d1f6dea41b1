//go:build integration

package subresource_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/profiler"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/freeport"
)

// profiles asks virt-api for the profiles of a component that serves its own as each does, with the rights that it has in a cluster.
func profiles(t *testing.T, c *cluster) {
	t.Helper()
	const start, stop, dump = group + "/start-cluster-profiler", group + "/stop-cluster-profiler", group + "/dump-cluster-profiler"
	g := gomega.NewWithT(t)
	off := `Unable to start profiler. \"ClusterProfiler\" feature gate must be enabled`
	c.says(t, start, "", http.StatusForbidden, off)
	kv := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: "kubevirt"}}
	must(t, c.Create(t.Context(), kv))
	c.says(t, start, "", http.StatusForbidden, off)
	kv.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{ClusterProfiler: true}
	must(t, c.Update(t.Context(), kv))
	c.says(t, start, "", http.StatusInternalServerError, "no component pods found") // virt-handler's, of other stages, is not said to be ready
	c.says(t, dump, "{}", http.StatusNoContent, "")

	port := c.runComponent(t)
	c.component(t, "virt-controller-1", "virt-controller", port)
	c.component(t, "cdi-uploadproxy-1", "cdi-uploadproxy", 1) // is none that is asked
	g.Eventually(func() string {
		code, said := c.ask(t, c.Config, http.MethodGet, start, "")
		return fmt.Sprint(code, said)
	}, bound, "200ms").Should(gomega.Equal("200"), "the component knows virt-api") // when its rights count
	c.says(t, group+"/stop-cluster-profiler", "", http.StatusOK, "")

	collect := func(body string) virtv1.ClusterProfilerResults {
		code, said := c.ask(t, c.Config, http.MethodGet, dump, body)
		results := virtv1.ClusterProfilerResults{}
		if err := json.Unmarshal([]byte(said), &results); err != nil || code != http.StatusOK {
			t.Fatalf("got %d %.300s", code, said)
		}
		return results
	}
	all := collect("").ComponentResults
	g.Expect(slices.Collect(maps.Keys(all))).To(gomega.ConsistOf("virt-controller-1"))
	g.Expect(slices.Sorted(maps.Keys(all["virt-controller-1"].PprofData))).To(gomega.Equal([]string{
		"allocs.pprof", "block.pprof", "cpu.pprof", "goroutine.pprof", "heap.pprof", "mutex.pprof", "threadcreate.pprof",
	}))

	c.component(t, "virt-controller-2", "virt-controller", port)
	first := collect(`{"labelSelector": "kubevirt.io=virt-controller", "pageSize": 1}`)
	g.Expect(first.Continue).NotTo(gomega.BeEmpty())
	second := collect(`{"labelSelector": "kubevirt.io=virt-controller", "pageSize": 1, "continue": "` + first.Continue + `"}`)
	g.Expect(slices.Collect(maps.Keys(second.ComponentResults))).To(gomega.ConsistOf("virt-controller-2"))
	if second.Continue != "" { // the API server does not look whether the pods that are left are selected
		c.says(t, dump, `{"labelSelector": "kubevirt.io=virt-controller", "pageSize": 1, "continue": "`+second.Continue+`"}`, http.StatusNoContent, "")
	}
	c.says(t, dump, `{"labelSelector": "kubevirt.io=virt-api"}`, http.StatusNoContent, "")
	c.says(t, dump, `{"labelSelector": "kubevirt.io=cdi-uploadproxy"}`, http.StatusNoContent, "")
	c.says(t, dump, `{"continue": "nonsense"}`, http.StatusBadRequest, "without continue")

	c.profilesAreNotForAll(t, port)

	c.component(t, "virt-operator-1", "virt-operator", freeport.TCP(t)) // where nothing listens
	c.says(t, stop, "", http.StatusInternalServerError, "asking pod virt-operator-1 for stop-profiler")
	for _, name := range []string{"virt-controller-1", "virt-controller-2", "virt-operator-1", "cdi-uploadproxy-1"} {
		must(t, c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: name}}, client.GracePeriodSeconds(0)))
	}
	must(t, c.Delete(t.Context(), kv))
}

// profilesAreNotForAll asks as those who may not.
func (c *cluster) profilesAreNotForAll(t *testing.T, port int) {
	t.Helper()
	path := group + "/dump-cluster-profiler"
	anyone := c.User(t, "anyone")
	code, said := c.ask(t, anyone, http.MethodGet, path, "{}")
	if code != http.StatusForbidden || !strings.Contains(said, `cannot list resource \"dump-cluster-profiler\"`) {
		t.Errorf("anyone: got %d %.300s", code, said)
	}
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // who asks is what is tested
	if code, said := send(t, insecure, http.MethodGet, "https://"+c.address+path, "{}", "X-Remote-User", "system:admin", "X-Remote-Group", "system:masters"); code != http.StatusUnauthorized {
		t.Errorf("past the API server: got %d %.300s", code, said)
	}
	proxied := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{c.Proxy}}}} //nolint:gosec // likewise
	if code, said := send(t, proxied, http.MethodGet, "https://"+c.address+path, "{}", "X-Remote-User", "anyone"); code != http.StatusForbidden {
		t.Errorf("as the front proxy for anyone: got %d %.300s", code, said)
	}
	own := fmt.Sprintf("https://127.0.0.1:%d", port)
	if code, said := send(t, insecure, http.MethodGet, own+profiler.DumpPath, ""); code != http.StatusUnauthorized {
		t.Errorf("any pod: got %d %.300s", code, said)
	}
	if code, said := send(t, proxied, http.MethodGet, own+profiler.DumpPath, ""); code != http.StatusForbidden {
		t.Errorf("somebody with a certificate: got %d %.300s", code, said)
	}
	if code, _ := send(t, insecure, http.MethodGet, own+"/metrics", ""); code != http.StatusOK {
		t.Errorf("metrics: got %d", code)
	}

	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "profiles"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"subresources.kubevirt.io"}, Resources: []string{"dump-cluster-profiler"}, Verbs: []string{"list"}},
	}}
	must(t, c.Create(t.Context(), role))
	must(t, c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "profiles"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "profiles"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "anyone"}},
	}))
	gomega.NewWithT(t).Eventually(func() int {
		code, _ := c.ask(t, anyone, http.MethodGet, path, "{}")
		return code
	}, bound, "200ms").Should(gomega.Equal(http.StatusOK), "a role lets him")
}

// runComponent runs what each component serves beside its metrics, as virt-controller. It returns the port.
func (c *cluster) runComponent(t *testing.T) int {
	t.Helper()
	planned, err := render.Folder(components.Files(), "virt-controller", render.Values{Namespace: installed})
	must(t, err)
	for _, object := range planned {
		if kind := object.GetKind(); strings.HasPrefix(kind, "ClusterRole") || kind == "ServiceAccount" {
			must(t, client.IgnoreAlreadyExists(c.Create(t.Context(), object)))
		}
	}
	account := c.User(t, "system:serviceaccount:"+installed+":virt-controller", "system:serviceaccounts", "system:serviceaccounts:"+installed)
	port := freeport.TCP(t)
	mgr, err := ctrl.NewManager(account, ctrl.Options{Scheme: scheme.New(), HealthProbeBindAddress: "0", Metrics: metric.Server(fmt.Sprintf("127.0.0.1:%d", port), nil)})
	must(t, err)
	must(t, profiler.Serve(mgr, featuregate.Profiler))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("the component: %v", err)
		}
	})
	return port
}

// component makes the pod of one that is ready, and serves its metrics at a port of this machine.
func (c *cluster) component(t *testing.T, name, app string, port int) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: name, Labels: map[string]string{virtv1.AppLabel: app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: app, Image: "none", Ports: []corev1.ContainerPort{{Name: profiler.PortName, ContainerPort: int32(port)}}, //nolint:gosec // a port fits
		}}},
	}
	must(t, c.Create(t.Context(), pod))
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	must(t, c.Status().Update(t.Context(), pod))
}

// says asks for what is of the cluster, and compares the answer.
func (c *cluster) says(t *testing.T, path, body string, wantCode int, wantWords string) {
	t.Helper()
	code, said := c.ask(t, c.Config, http.MethodGet, path, body)
	if code != wantCode || !strings.Contains(said, wantWords) {
		t.Errorf("%s %s: got %d %.500s, want %d with %q", path, body, code, said, wantCode, wantWords)
	}
}
