//go:build e2e

package lifecycle

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("an eviction of a launcher pod", func() {
	It("ends no guest that is to migrate or that others move, and shuts others down", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		for name, strategy := range map[string]virtv1.EvictionStrategy{
			"moves": virtv1.EvictionStrategyLiveMigrate, "external": virtv1.EvictionStrategyExternal, "ends": virtv1.EvictionStrategyNone,
		} {
			suite.Create(ctx, fixture.VM(ns, name, fixture.ContainerDisk(suite.TinyImage()), func(vm *virtv1.VirtualMachine) {
				vm.Spec.Template.Spec.EvictionStrategy = &strategy
			}))
		}
		moves, external, ends := suite.RunningVMI(ctx, ns, "moves"), suite.RunningVMI(ctx, ns, "external"), suite.RunningVMI(ctx, ns, "ends")

		By("evicting one that asks for a migration")
		err := evict(ctx, moves)
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("VMI moves is configured with an eviction strategy but is not live-migratable")))

		By("evicting one that somebody else moves")
		Expect(evict(ctx, external)).To(MatchError(ContainSubstring("Eviction triggered evacuation of VMI")))
		Expect(evict(ctx, external)).To(MatchError(ContainSubstring("Evacuation in progress")))
		node := external.Status.NodeName
		Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(external), external)).To(Succeed())
		Expect(external.Status.EvacuationNodeName).To(Equal(node))

		By("evicting one that may end")
		Expect(evict(ctx, ends)).To(Succeed())
		nextVMI(ctx, ends)
		for _, kept := range []*virtv1.VirtualMachineInstance{moves, external} {
			now := &virtv1.VirtualMachineInstance{}
			Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(kept), now)).To(Succeed())
			Expect(now.UID).To(Equal(kept.UID))
			Expect(now.Status.Phase).To(Equal(virtv1.Running))
		}
	}, SpecTimeout(30*time.Minute))
})

// evict asks the API server to evict the launcher pod of vmi, as a drain does. Where virt-api is too busy to say why not, the pod's
// disruption budget keeps it, and it is asked again.
func evict(ctx context.Context, vmi *virtv1.VirtualMachineInstance) error {
	GinkgoHelper()
	pods := &corev1.PodList{}
	created := client.MatchingLabels{virtv1.CreatedByLabel: string(vmi.UID), virtv1.AppLabel: "virt-launcher"}
	Expect(suite.World.Client.List(ctx, pods, client.InNamespace(vmi.Namespace), created)).To(Succeed())
	Expect(pods.Items).To(HaveLen(1))
	p := &pods.Items[0]
	var answer error
	Eventually(ctx, func() string {
		answer = suite.World.Client.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
		return fmt.Sprint(answer)
	}, suite.BoundEnd, time.Second).ShouldNot(ContainSubstring("disruption budget"))
	return answer
}
