//go:build e2e

package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("the processors of nodes", func() {
	It("are labels of theirs, by which guests find the one that they name", func(ctx context.Context) {
		nodes := &corev1.NodeList{}
		Eventually(ctx, func(g Gomega) { // one whose virt-handler was silent for long on a busy machine is taken up again
			g.Expect(suite.World.Client.List(ctx, nodes, client.MatchingLabels{virtv1.NodeSchedulable: "true"})).To(Succeed())
			g.Expect(nodes.Items).NotTo(BeEmpty())
			for _, node := range nodes.Items {
				for _, prefix := range []string{virtv1.HostModelCPULabel, virtv1.CPUModelVendorLabel, virtv1.CPUFeatureLabel} {
					g.Expect(labelled(node, prefix)).NotTo(BeEmpty(), "labels %s… of node %s: %v", prefix, node.Name, node.Labels)
				}
			}
		}, suite.BoundEnd, time.Second).Should(Succeed())
		model, kvm := "", false
		for _, node := range nodes.Items {
			model = labelled(node, virtv1.CPUModelLabel)
			offered := node.Status.Capacity[names.DeviceKVM]
			kvm = kvm || !offered.IsZero()
		}
		ns := suite.Namespace(ctx)
		if model != "" { // nodes that are virtual machines themselves may only have models that are obsolete
			By("running a guest that names the model " + model)
			suite.Create(ctx, fixture.VM(ns, "named", fixture.ContainerDisk(suite.TinyImage()), withModel(model)))
			suite.RunningVMI(ctx, ns, "named")
		}
		if !kvm {
			return // emulation has what no processor has
		}
		By("waiting for a model that no node has")
		suite.Create(ctx, fixture.VM(ns, "picky", fixture.ContainerDisk(suite.TinyImage()), withModel("Abacus")))
		picky := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "picky"}}
		Expect(suite.World.Await(ctx, GinkgoWriter, picky, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
			words, told := "", false
			for _, c := range obj.(*virtv1.VirtualMachineInstance).Status.Conditions {
				words += fmt.Sprintf("%s: %s; ", c.Type, c.Message)
				told = told || c.Type == "PodScheduled" && strings.Contains(c.Message, "can have: model Abacus")
			}
			return words, told, nil
		})).To(Succeed())
	}, SpecTimeout(20*time.Minute))
})

// labelled is the end of the first label of node that begins with prefix; empty when there is none.
func labelled(node corev1.Node, prefix string) string {
	for _, label := range slices.Sorted(maps.Keys(node.Labels)) {
		if name, is := strings.CutPrefix(label, prefix); is {
			return name
		}
	}
	return ""
}

// withModel has the guest name its processor.
func withModel(model string) fixture.VMOption {
	return func(vm *virtv1.VirtualMachine) { vm.Spec.Template.Spec.Domain.CPU = &virtv1.CPU{Model: model} }
}
