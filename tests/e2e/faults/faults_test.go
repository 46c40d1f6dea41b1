//go:build e2e

// Package faults tests that a VM lives on when Slipway's own parts die.
package faults

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestFaults(t *testing.T) { suite.Run(t, "faults") }

var _ = Describe("a running VM", Ordered, func() {
	var vmi *virtv1.VirtualMachineInstance

	BeforeAll(func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.VM(ns, "steady", fixture.ContainerDisk(suite.TinyImage())))
		vmi = suite.RunningVMI(ctx, ns, "steady")
	}, NodeTimeout(20*time.Minute))

	DescribeTable("lives on when a part is killed with -9, and is deleted as ever afterwards",
		func(ctx context.Context, part string) {
			before := uptime(ctx, vmi)
			killPods(ctx, part)
			Expect(uptime(ctx, vmi)).To(BeNumerically(">=", before), "the guest did not restart")
			waitReady(ctx, part)
			Expect(uptime(ctx, vmi)).To(BeNumerically(">", before))

			By("creating and deleting another VM with the part that came back")
			vm := fixture.VM(vmi.Namespace, "after-"+part, fixture.ContainerDisk(suite.TinyImage()))
			suite.Create(ctx, vm)
			suite.RunningVMI(ctx, vmi.Namespace, vm.Name)
			Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
			Expect(suite.World.Gone(ctx, GinkgoWriter, vm, suite.BoundEnd)).To(Succeed())
			found := suite.RunningVMI(ctx, vmi.Namespace, vmi.Name)
			Expect(found.UID).To(Equal(vmi.UID))
		},
		Entry("virt-handler", SpecTimeout(25*time.Minute), "virt-handler"),
		Entry("virt-controller", SpecTimeout(25*time.Minute), "virt-controller"),
		Entry("virt-api", SpecTimeout(25*time.Minute), "virt-api"),
	)
})

// uptime returns how many seconds the guest has been up.
func uptime(ctx context.Context, vmi *virtv1.VirtualMachineInstance) float64 {
	GinkgoHelper()
	text := suite.Shell(ctx, vmi, "cat /proc/uptime")
	seconds, err := strconv.ParseFloat(strings.Fields(text)[0], 64)
	Expect(err).NotTo(HaveOccurred())
	return seconds
}

// killPods kills the part's processes at once: a deletion without grace is a SIGKILL.
func killPods(ctx context.Context, part string) {
	GinkgoHelper()
	for _, pod := range podsOf(ctx, part) {
		err := suite.World.Client.Delete(ctx, &pod, &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		Expect(client.IgnoreNotFound(err)).To(Succeed()) // one that was going already may be gone
	}
}

func podsOf(ctx context.Context, part string) []corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(names.InstallNamespace), client.MatchingLabels{"kubevirt.io": part})).To(Succeed())
	Expect(pods.Items).NotTo(BeEmpty(), "no pod of %s", part)
	return pods.Items
}

// waitReady waits until every pod of the part is ready.
func waitReady(ctx context.Context, part string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var pods corev1.PodList
		g.Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(names.InstallNamespace), client.MatchingLabels{"kubevirt.io": part})).To(Succeed())
		g.Expect(pods.Items).NotTo(BeEmpty())
		for _, pod := range pods.Items {
			ready := false
			for _, c := range pod.Status.Conditions {
				ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}
			g.Expect(ready && pod.DeletionTimestamp == nil).To(BeTrue(), "pod %s is %s", pod.Name, pod.Status.Phase)
		}
	}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
}
