//go:build e2e

package lifecycle

import (
	"context"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a VM of a shipped instance type and preference", func() {
	It("has the CPUs, the memory and the devices that these say", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		size, likes := &v1beta1.VirtualMachineClusterInstancetype{}, &v1beta1.VirtualMachineClusterPreference{}
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Name: "u1.nano"}, size)).To(Succeed(), "the operator has not installed it")
		Expect(suite.World.Client.Get(ctx, client.ObjectKey{Name: "linux"}, likes)).To(Succeed(), "the operator has not installed it")
		suite.Create(ctx, fixture.VM(ns, "nano", fixture.ContainerDisk(suite.TinyImage()), fixture.Sizes(size.Name, likes.Name)))
		vmi := suite.RunningVMI(ctx, ns, "nano")

		By("looking at the instance")
		Expect(vmi.Annotations).To(HaveKeyWithValue(virtv1.ClusterInstancetypeAnnotation, size.Name))
		Expect(vmi.Annotations).To(HaveKeyWithValue(virtv1.ClusterPreferenceAnnotation, likes.Name))
		Expect(vmi.Spec.Domain.Devices.Disks[0].Disk.Bus).To(Equal(likes.Spec.Devices.PreferredDiskBus))

		By("looking from inside")
		Expect(suite.Shell(ctx, vmi, "grep -c ^processor /proc/cpuinfo")).To(Equal(strconv.Itoa(int(size.Spec.CPU.Guest))))
		words := strings.Fields(suite.Shell(ctx, vmi, "grep ^MemTotal /proc/meminfo"))
		Expect(words).To(HaveLen(3))
		kilobytes, err := strconv.ParseInt(words[1], 10, 64)
		Expect(err).NotTo(HaveOccurred())
		whole := size.Spec.Memory.Guest.Value() // of which the guest's kernel keeps some
		Expect(kilobytes * 1024).To(And(BeNumerically(">", whole*3/4), BeNumerically("<=", whole)))
		Expect(suite.Shell(ctx, vmi, "cat /proc/partitions")).To(ContainSubstring("vda"))
	}, SpecTimeout(15*time.Minute))
})
