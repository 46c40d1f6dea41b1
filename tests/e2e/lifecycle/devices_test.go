//go:build e2e

package lifecycle

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// Commands to a TPM 2.0 as its specification has them, with an empty password: to make
// eight bytes that last (at 0x01500010), to write them, and to read them.
const (
	tpmDefine = `\x80\x02\x00\x00\x00\x2d\x00\x00\x01\x2a\x40\x00\x00\x01\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00` +
		`\x00\x00\x00\x0e\x01\x50\x00\x10\x00\x0b\x00\x06\x00\x06\x00\x00\x00\x08`
	tpmWrite = `\x80\x02\x00\x00\x00\x2b\x00\x00\x01\x37\x01\x50\x00\x10\x01\x50\x00\x10\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00` +
		`\x00\x08SLIPWAY!\x00\x00`
	tpmRead = `\x80\x02\x00\x00\x00\x23\x00\x00\x01\x4e\x01\x50\x00\x10\x01\x50\x00\x10\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00\x00\x08\x00\x00`
)

var _ = Describe("a VM with a TPM, UEFI and a kernel of its own", func() {
	It("finds again what it left in the TPM, and takes that along when it is deleted", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		vm := fixture.VM(ns, "trusted", fixture.EmptyDisk("scratch", "64Mi"), fixture.Memory("256Mi"), trusted(suite.TinyImage()))
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, "trusted")
		expectNoWarnings(ctx, ns)

		By("looking from inside")
		Expect(suite.Shell(ctx, vmi, "cat /sys/firmware/efi/fw_platform_size")).To(Equal("64"))
		Expect(suite.Shell(ctx, vmi, "cat /proc/cmdline")).To(ContainSubstring("slipway=yes"))
		Expect(suite.Shell(ctx, vmi, "cat /sys/class/tpm/tpm0/tpm_version_major")).To(Equal("2"))
		Expect(suite.Shell(ctx, vmi, "cat /sys/bus/pci/devices/*/class")).To(ContainSubstring("0x0403"), "a sound card")
		Expect(suite.Shell(ctx, vmi, "ls /sys/block/vda/mq")).To(Equal("0\n1"), "a queue for each thread of the pool")

		By("leaving something in the TPM")
		Expect(askTPM(ctx, vmi, tpmDefine)).To(HavePrefix("8002000000130000000"))
		Expect(askTPM(ctx, vmi, tpmWrite)).To(HavePrefix("8002000000130000000"))
		kept := stateClaims(ctx, ns)
		Expect(kept).To(HaveLen(1))
		Expect(kept[0].Name).To(HavePrefix("persistent-state-for-trusted-"))
		Expect(kept[0].Status.Phase).To(Equal(corev1.ClaimBound))
		Expect(metav1.GetControllerOf(&kept[0]).Kind).To(Equal("VirtualMachine"))

		By("stopping it and starting it again")
		patchStrategy(ctx, vm, virtv1.RunStrategyHalted)
		Expect(suite.World.Gone(ctx, GinkgoWriter, vmi, suite.BoundEnd)).To(Succeed())
		patchStrategy(ctx, vm, virtv1.RunStrategyAlways)
		again := suite.RunningVMI(ctx, ns, "trusted")
		Expect(askTPM(ctx, again, tpmRead)).To(ContainSubstring("534c495057415921"), "SLIPWAY!, as it was written")
		still := stateClaims(ctx, ns)
		Expect(still).To(HaveLen(1))
		Expect(still[0].UID).To(Equal(kept[0].UID))

		By("deleting it")
		Expect(suite.World.Client.Delete(ctx, vm)).To(Succeed())
		Expect(suite.World.Gone(ctx, GinkgoWriter, &kept[0], suite.BoundEnd)).To(Succeed())
	}, SpecTimeout(30*time.Minute))
})

// trusted adds what the spec is about; image holds the kernel.
func trusted(image string) fixture.VMOption {
	return func(vm *virtv1.VirtualMachine) {
		domain := &vm.Spec.Template.Spec.Domain
		domain.CPU = &virtv1.CPU{Cores: 2}
		domain.Firmware = &virtv1.Firmware{
			Bootloader: &virtv1.Bootloader{EFI: &virtv1.EFI{SecureBoot: new(false), Persistent: new(true)}},
			KernelBoot: &virtv1.KernelBoot{
				// With one processor until the guest starts the other, as the guest's own boot loader has it.
				KernelArgs: "console=ttyS0,115200 quiet nokaslr mitigations=off random.trust_cpu=on no_timer_check clocksource=acpi_pm tsc=unstable maxcpus=1 cryptomgr.notests slipway=yes",
				Container:  &virtv1.KernelBootContainer{Image: image, KernelPath: "/boot/vmlinuz", InitrdPath: "/boot/initrd"},
			},
		}
		domain.Devices.TPM = &virtv1.TPMDevice{Persistent: new(true)}
		domain.Devices.Sound = &virtv1.SoundDevice{Name: "hum"}
		domain.IOThreadsPolicy = new(virtv1.IOThreadsPolicySupplementalPool)
		domain.IOThreads = &virtv1.DiskIOThreads{SupplementalPoolThreadCount: new(uint32(2))}
	}
}

// askTPM sends a command to the guest's TPM and returns the answer in hexadecimal digits.
func askTPM(ctx context.Context, vmi *virtv1.VirtualMachineInstance, command string) string {
	GinkgoHelper()
	return suite.Shell(ctx, vmi, `exec 3<>/dev/tpm0; printf '`+command+`' | dd bs=4096 status=none >&3; dd bs=4096 count=1 status=none <&3 | od -An -v -tx1 | tr -d ' \n'`)
}

func stateClaims(ctx context.Context, namespace string) []corev1.PersistentVolumeClaim {
	GinkgoHelper()
	var list corev1.PersistentVolumeClaimList
	Expect(suite.World.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"persistent-state-for": "trusted"})).To(Succeed())
	return list.Items
}
