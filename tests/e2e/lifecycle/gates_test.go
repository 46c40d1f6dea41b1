//go:build e2e

package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("what is behind feature gates", func() {
	It("tells a guest of its node, and gives one an address for sockets", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		told := fixture.VM(ns, "told", fixture.ContainerDisk(suite.TinyImage()), withMetrics)
		Expect(suite.World.Client.Create(ctx, told)).To(MatchError(ContainSubstring("DownwardMetrics feature gate is not enabled")))
		openGates(ctx, "DownwardMetrics", "VSOCK")

		By("reading metrics in a guest")
		suite.Create(ctx, fixture.VM(ns, "told", fixture.ContainerDisk(suite.TinyImage()), withMetrics))
		vmi := suite.RunningVMI(ctx, ns, "told")
		expectNoWarnings(ctx, ns)
		Eventually(ctx, func() string { return suite.Shell(ctx, vmi, "tr -d '\\000' < /dev/vdb | head -c 4000") }, suite.BoundEnd, time.Second).
			Should(And(HavePrefix("mvbd"), ContainSubstring("<![CDATA["+vmi.Status.NodeName+"]]>")), "what the node writes for the guest now and then")
		Expect(suite.Shell(ctx, vmi, `exec 3<>/dev/$(basename $(dirname $(grep -l vhostmd /sys/class/virtio-ports/*/name)))
printf 'GET /metrics/XML\n\n' >&3; while read -r line <&3; do [ -n "$line" ] || break; echo "$line"; done`)).
			To(And(ContainSubstring("<![CDATA["+vmi.Status.NodeName+"]]>"), ContainSubstring("<name>FreePhysicalMemory</name>"), HaveSuffix("</metrics>")))

		By("waiting for a node with the sockets' device, which this one may have")
		suite.Create(ctx, fixture.VM(ns, "talks", fixture.ContainerDisk(suite.TinyImage()), func(vm *virtv1.VirtualMachine) {
			vm.Spec.Template.Spec.Domain.Devices.AutoattachVSOCK = new(true)
		}))
		talks := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "talks"}}
		Expect(suite.World.Await(ctx, GinkgoWriter, talks, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
			found := obj.(*virtv1.VirtualMachineInstance)
			words := string(found.Status.Phase)
			refused := false
			for _, c := range found.Status.Conditions {
				words += fmt.Sprintf("; %s: %s", c.Type, c.Message)
				refused = refused || c.Type == "PodScheduled" && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, names.DeviceVhostVSOCK)
			}
			addressed := found.Status.VSOCKCID != nil && *found.Status.VSOCKCID >= 3
			return words, addressed && (refused || found.Status.Phase == virtv1.Running), nil
		})).To(Succeed())
	}, SpecTimeout(20*time.Minute))
})

// withMetrics has the guest told of its node by both ways.
func withMetrics(vm *virtv1.VirtualMachine) {
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.DownwardMetrics = &virtv1.DownwardMetrics{}
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
		virtv1.Disk{Name: "metrics", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: virtv1.DiskBusVirtio}}})
	spec.Volumes = append(spec.Volumes, virtv1.Volume{Name: "metrics", VolumeSource: virtv1.VolumeSource{DownwardMetrics: &virtv1.DownwardMetricsVolumeSource{}}})
}

// openGates opens gates in the KubeVirt object until the spec ends, beside what the operator says there.
func openGates(ctx context.Context, gates ...string) {
	GinkgoHelper()
	patch := func(ctx context.Context, value string) {
		kv := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.KubeVirtName}}
		change := fmt.Sprintf(`{"spec":{"configuration":{"developerConfiguration":{"featureGates":%s}}}}`, value)
		Expect(suite.World.Client.Patch(ctx, kv, client.RawPatch(types.MergePatchType, []byte(change)))).To(Succeed())
	}
	patch(ctx, `["`+strings.Join(gates, `","`)+`"]`)
	DeferCleanup(func(ctx context.Context) { patch(ctx, "null") })
}
