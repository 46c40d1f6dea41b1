//go:build e2e

package verbs

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

// profiling asks the cluster profiler for what, in the way of KubeVirt's client.
func profiling(ctx context.Context, what string, request *virtv1.ClusterProfilerRequest) (*virtv1.ClusterProfilerResults, error) {
	GinkgoHelper()
	asked, err := discovery.NewDiscoveryClientForConfig(suite.World.Config)
	Expect(err).NotTo(HaveOccurred())
	get := asked.RESTClient().Get().RequestURI("/apis/subresources.kubevirt.io/v1/" + what)
	if request != nil {
		body, err := json.Marshal(request)
		Expect(err).NotTo(HaveOccurred())
		get = get.Body(body)
	}
	answer := get.Do(ctx)
	if err := answer.Error(); err != nil { // with what the answer says, which Raw leaves out
		return nil, err
	}
	said, err := answer.Raw()
	if err != nil || len(said) == 0 {
		return nil, err
	}
	results := &virtv1.ClusterProfilerResults{}
	Expect(json.Unmarshal(said, results)).To(Succeed())
	return results, nil
}

var _ = Describe("the cluster profiler", Serial, Label("alone"), func() {
	It("is off, and tells of all components while the KubeVirt object turns it on", func(ctx context.Context) {
		turn := func(ctx context.Context, on string) {
			kv := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.KubeVirtName}}
			patch := []byte(`{"spec":{"configuration":{"developerConfiguration":{"clusterProfiler":` + on + `}}}}`)
			Expect(suite.World.Client.Patch(ctx, kv, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		_, err := profiling(ctx, "start-cluster-profiler", nil)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "got %v", err)
		Expect(err).To(MatchError(ContainSubstring(`"ClusterProfiler" feature gate must be enabled`)))

		DeferCleanup(func(ctx context.Context) { turn(ctx, "null") })
		turn(ctx, "true")
		for _, what := range []string{"start-cluster-profiler", "stop-cluster-profiler"} {
			_, err := profiling(ctx, what, nil)
			Expect(err).NotTo(HaveOccurred())
		}
		found := map[string]int{}
		request := &virtv1.ClusterProfilerRequest{PageSize: 2}
		for {
			results, err := profiling(ctx, "dump-cluster-profiler", request)
			Expect(err).NotTo(HaveOccurred())
			if results == nil {
				break
			}
			for pod, result := range results.ComponentResults {
				Expect(result.PprofData).To(And(HaveKey("cpu.pprof"), HaveKey("heap.pprof"), HaveKey("goroutine.pprof")), pod)
				for _, component := range []string{"virt-api", "virt-controller", "virt-handler", "virt-operator"} {
					if strings.HasPrefix(pod, component+"-") {
						found[component]++
					}
				}
			}
			if request.Continue = results.Continue; request.Continue == "" {
				break
			}
		}
		Expect(found).To(And(HaveKey("virt-api"), HaveKey("virt-controller"), HaveKey("virt-handler"), HaveKey("virt-operator")))

		turn(ctx, "null")
		_, err = profiling(ctx, "dump-cluster-profiler", &virtv1.ClusterProfilerRequest{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "got %v", err)
	}, SpecTimeout(5*time.Minute))
})
