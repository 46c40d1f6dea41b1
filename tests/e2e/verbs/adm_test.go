//go:build e2e

package verbs

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

var _ = Describe("virtctl adm log-verbosity", func() {
	It("has components log more, and less again, while they run", func(ctx context.Context) {
		const ns = names.InstallNamespace
		DeferCleanup(func(ctx context.Context) { virtctl(ctx, ns, "adm", "log-verbosity", "--reset") })
		before := map[string]string{}
		for _, name := range []string{"virt-api", "virt-controller", "virt-handler"} {
			before[name] = podOf(ctx, name).Name
		}
		Expect(virtctl(ctx, ns, "adm", "log-verbosity", "--virt-api=5", "--virt-controller=6", "--virt-handler=7")).To(ContainSubstring("successfully set"))
		Expect(virtctl(ctx, ns, "adm", "log-verbosity", "--all")).To(And(
			ContainSubstring("virt-api = 5\nvirt-controller = 6\nvirt-handler = 7\n"), ContainSubstring("virt-operator = 2\n")))
		for name, level := range map[string]int{"virt-api": 5, "virt-controller": 6, "virt-handler": 7} {
			logs(ctx, name, fmt.Sprintf(`from="2" to="%d"`, level))
		}
		virtctl(ctx, ns, "adm", "log-verbosity", "--reset")
		for name, level := range map[string]int{"virt-api": 5, "virt-controller": 6, "virt-handler": 7} {
			logs(ctx, name, fmt.Sprintf(`from="%d" to="2"`, level))
			Expect(podOf(ctx, name).Name).To(Equal(before[name]), "nothing was started again")
		}
	}, SpecTimeout(15*time.Minute))
})

// podOf is a component's pod that runs.
func podOf(ctx context.Context, component string) *corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(names.InstallNamespace), client.MatchingLabels{virtv1.AppLabel: component})).To(Succeed())
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning && pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i]
		}
	}
	Fail("no pod of " + component + " runs")
	return nil
}

// logs waits until a component's log has words.
func logs(ctx context.Context, component, words string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		log, err := suite.World.Log(ctx, names.InstallNamespace, podOf(ctx, component).Name, "")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(log).To(MatchRegexp("Changing how much is logged.*" + words))
	}, boundVerb, time.Second).Should(Succeed())
}
