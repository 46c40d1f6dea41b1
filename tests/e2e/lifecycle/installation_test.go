//go:build e2e

package lifecycle

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// configure merges change into the KubeVirt object's configuration.
func configure(ctx context.Context, change string) {
	kv := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.KubeVirtName}}
	patch := []byte(`{"spec":{"configuration":` + change + `}}`)
	Expect(suite.World.Client.Patch(ctx, kv, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

var _ = Describe("what the KubeVirt object says of all virtual machines", Serial, Label("alone"), func() {
	It("is what one has that starts then", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		DeferCleanup(func(ctx context.Context) {
			configure(ctx, `{"smbios":null,"virtualMachineOptions":null,"additionalGuestMemoryOverheadRatio":null,"autoCPULimitNamespaceLabelSelector":null,`+
				`"machineType":null,"emulatedMachines":null,"cpuModel":null,"cpuRequest":null,"defaultRuntimeClass":null,"memBalloonStatsPeriod":null,`+
				`"developerConfiguration":{"nodeSelectors":null}}`)
		})
		// The node's usual runtime under another name.
		suite.Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Handler: "runc"})
		configure(ctx, `{"smbios":{"manufacturer":"Example, Inc.","version":"2.1"},"virtualMachineOptions":{"disableFreePageReporting":{}},`+
			`"additionalGuestMemoryOverheadRatio":"1.5","autoCPULimitNamespaceLabelSelector":{"matchLabels":{"kubernetes.io/metadata.name":"`+ns+`"}},`+
			`"machineType":"pc-q35-9.2","emulatedMachines":["pc-q35-9.2"],"cpuModel":"host-model","cpuRequest":"150m","defaultRuntimeClass":"`+ns+`",`+
			`"memBalloonStatsPeriod":0,"developerConfiguration":{"nodeSelectors":{"kubernetes.io/os":"linux"}}}`)
		older := fixture.VM(ns, "older", fixture.ContainerDisk(suite.TinyImage()))
		older.Spec.Template.Spec.Domain.Machine = &virtv1.Machine{Type: "pc-q35-9.1"}
		Expect(suite.World.Client.Create(ctx, older)).To(MatchError(ContainSubstring("pc-q35-9.2")), "a machine that is not one of those allowed")
		suite.Create(ctx, fixture.VM(ns, "configured", fixture.ContainerDisk(suite.TinyImage())))
		vmi := suite.RunningVMI(ctx, ns, "configured")
		Expect(vmi.Spec.Domain.CPU.Model).To(Equal("host-model"))
		Expect(vmi.Status.Machine.Type).To(Equal("pc-q35-9.2"))
		Expect(suite.Shell(ctx, vmi, "cat /sys/class/dmi/id/sys_vendor")).To(Equal("Example, Inc."))
		Expect(suite.Shell(ctx, vmi, "cat /sys/class/dmi/id/product_version")).To(Equal("2.1"))
		Expect(suite.Shell(ctx, vmi, "cat /sys/class/dmi/id/product_family")).To(Equal("KubeVirt"))

		pods := &corev1.PodList{}
		Expect(suite.World.Client.List(ctx, pods, client.InNamespace(ns), client.MatchingLabels{virtv1.CreatedByLabel: string(vmi.UID)})).To(Succeed())
		Expect(pods.Items).To(HaveLen(1))
		limit := pods.Items[0].Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]
		Expect(limit.String()).To(Equal("1"), "a processor for the one virtual CPU")
		request := pods.Items[0].Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
		Expect(request.String()).To(Equal("150m"))
		Expect(pods.Items[0].Spec.NodeSelector).To(HaveKeyWithValue("kubernetes.io/os", "linux"))
		Expect(pods.Items[0].Spec.RuntimeClassName).To(HaveValue(Equal(ns)))

		By("taking memory, of which the guest would tell by now and then")
		service := &corev1.Service{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: names.InstallNamespace, Name: "kubevirt-prometheus-metrics"}, service)).To(Succeed())
		usable := func(g Gomega) float64 {
			told := scrape(ctx, g, service, "virt-handler", vmi.Status.NodeName)
			g.Expect(value(told, "kubevirt_vmi_memory_domain_bytes", vmi)).To(BeNumerically(">", 0))
			return value(told, "kubevirt_vmi_memory_usable_bytes", vmi)
		}
		before := 0.0
		Eventually(ctx, func(g Gomega) { before = usable(g) }, suite.BoundEnd, time.Second).Should(Succeed())
		suite.Shell(ctx, vmi, "dd if=/dev/zero of=/run/taken bs=1M count=16")
		taken := time.Now()
		Eventually(ctx, func(g Gomega) {
			g.Expect(time.Since(taken)).To(BeNumerically(">", 15*time.Second), "a guest that is asked has told by then")
			g.Expect(usable(g)).To(Equal(before))
		}, suite.BoundEnd, time.Second).Should(Succeed())
	}, SpecTimeout(15*time.Minute))
})

var _ = Describe("instance types that are written out", Serial, Label("alone"), func() {
	It("are in the VM, whether it runs or not", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { configure(ctx, `{"instancetype":null}`) })
		configure(ctx, `{"instancetype":{"referencePolicy":"expand"}}`)
		vm := fixture.VM(suite.Namespace(ctx), "written-out", fixture.ContainerDisk(suite.TinyImage()), fixture.Strategy(virtv1.RunStrategyHalted))
		vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{Name: "u1.nano"}
		vm.Spec.Template.Spec.Domain.Memory, vm.Spec.Template.Spec.Domain.CPU = nil, nil
		vm.Spec.Template.Spec.Domain.Resources = virtv1.ResourceRequirements{}
		suite.Create(ctx, vm)
		Eventually(ctx, func(g Gomega) {
			g.Expect(suite.World.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)).To(Succeed())
			g.Expect(vm.Spec.Instancetype).To(BeNil())
			g.Expect(vm.Spec.Template.Spec.Domain.Memory.Guest.String()).To(Equal("512Mi"))
		}, suite.BoundEnd, time.Second).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("roles of users", Serial, Label("alone"), func() {
	It("are the cluster's own unless they are given by hand", func(ctx context.Context) {
		aggregated := func(want string) {
			Eventually(ctx, func(g Gomega) {
				role := &rbacv1.ClusterRole{}
				g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Name: "kubevirt.io:edit"}, role)).To(Succeed())
				g.Expect(role.Labels).To(HaveKeyWithValue("rbac.authorization.k8s.io/aggregate-to-edit", want))
			}, suite.BoundEnd, time.Second).Should(Succeed())
		}
		DeferCleanup(func(ctx context.Context) { configure(ctx, `{"roleAggregationStrategy":null}`) })
		configure(ctx, `{"roleAggregationStrategy":"Manual"}`)
		aggregated("false")
		configure(ctx, `{"roleAggregationStrategy":null}`)
		aggregated("true")
	}, SpecTimeout(5*time.Minute))
})
