//go:build e2e

package lifecycle

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	virtv1 "kubevirt.io/api/core/v1"
	instancetypeapi "kubevirt.io/api/instancetype"
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
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
	}, SpecTimeout(25*time.Minute))
})

var _ = Describe("a VM of a namespace's own instance type and preference", func() {
	It("keeps what a disk's labels said, whatever becomes of that", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		size := &v1beta1.VirtualMachineInstancetype{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "size"}}
		size.Spec.CPU.Guest, size.Spec.Memory.Guest = 2, resource.MustParse("160Mi")
		likes := &v1beta1.VirtualMachinePreference{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "likes"}}
		likes.Spec.Devices = &v1beta1.DevicePreferences{PreferredDiskBus: virtv1.DiskBusVirtio, PreferredInterfaceModel: "virtio", PreferredRng: &virtv1.Rng{}}
		labels := map[string]string{
			instancetypeapi.DefaultInstancetypeLabel: size.Name, instancetypeapi.DefaultInstancetypeKindLabel: "VirtualMachineInstancetype",
			instancetypeapi.DefaultPreferenceLabel: likes.Name, instancetypeapi.DefaultPreferenceKindLabel: "VirtualMachinePreference",
		}
		vm := fixture.VM(ns, "kept", fixture.ContainerDisk(suite.TinyImage()), fixture.Template("data", fixture.DataVolume(ns, "data", "16Mi")), fixture.Sizes("", ""))
		vm.Spec.DataVolumeTemplates[0].Labels = labels
		vm.Spec.Instancetype, vm.Spec.Preference = &virtv1.InstancetypeMatcher{InferFromVolume: "data"}, &virtv1.PreferenceMatcher{InferFromVolume: "data"}
		suite.Create(ctx, size, likes, vm)
		vmi := suite.RunningVMI(ctx, ns, vm.Name)
		expectSize := func(vmi *virtv1.VirtualMachineInstance) {
			GinkgoHelper()
			Expect(suite.Shell(ctx, vmi, "grep -c ^processor /proc/cpuinfo")).To(Equal("2"))
			Expect(guestMemory(ctx, vmi)).To(And(BeNumerically(">", 100<<10), BeNumerically("<=", 160<<10)))
			Expect(suite.Shell(ctx, vmi, "cat /proc/partitions")).To(ContainSubstring("vda"))
		}
		expectSize(vmi)
		vm = machineUntil(ctx, vm, func(vm *virtv1.VirtualMachine) bool {
			return vm.Status.InstancetypeRef != nil && vm.Status.InstancetypeRef.ControllerRevisionRef != nil && vm.Status.PreferenceRef != nil
		})
		Expect(vm.Status.InstancetypeRef.Name).To(Equal(size.Name))
		Expect(vm.Status.PreferenceRef.Name).To(Equal(likes.Name))

		By("refusing what both decide")
		other := fixture.VM(ns, "other", fixture.ContainerDisk(suite.TinyImage()))
		other.Spec.Instancetype = &virtv1.InstancetypeMatcher{Name: size.Name, Kind: "VirtualMachineInstancetype"}
		err := suite.World.Client.Create(ctx, other, client.DryRunAll)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("spec.template.spec.domain.memory.guest")))

		By("editing and deleting them, and starting it again")
		size.Spec.CPU.Guest, size.Spec.Memory.Guest = 1, resource.MustParse("512Mi")
		Expect(suite.World.Client.Update(ctx, size)).To(Succeed())
		Expect(suite.World.Client.Delete(ctx, size)).To(Succeed())
		Expect(suite.World.Client.Delete(ctx, likes)).To(Succeed())
		patchStrategy(ctx, vm, virtv1.RunStrategyHalted)
		suite.VMStatus(ctx, ns, vm.Name, virtv1.VirtualMachineStatusStopped)
		patchStrategy(ctx, vm, virtv1.RunStrategyAlways)
		expectSize(suite.RunningVMI(ctx, ns, vm.Name))
		patchStrategy(ctx, vm, virtv1.RunStrategyHalted)
		suite.VMStatus(ctx, ns, vm.Name, virtv1.VirtualMachineStatusStopped)

		By("running what it expands to")
		kube, err := kubernetes.NewForConfig(suite.World.Config)
		Expect(err).NotTo(HaveOccurred())
		path := "/apis/subresources.kubevirt.io/v1/namespaces/" + ns + "/virtualmachines/" + vm.Name + "/expand-spec"
		data, err := kube.RESTClient().Get().AbsPath(path).DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		expanded := &virtv1.VirtualMachine{}
		Expect(json.Unmarshal(data, expanded)).To(Succeed())
		Expect(expanded.Spec.Instancetype).To(BeNil())
		Expect(expanded.Spec.Template.Spec.Domain.Memory.Guest.String()).To(Equal("160Mi"))
		again := fixture.VM(ns, "expanded")
		again.Spec = expanded.Spec
		again.Spec.RunStrategy = new(virtv1.RunStrategyAlways)
		again.Spec.DataVolumeTemplates = nil // the disk is the other's, which stands still
		suite.Create(ctx, again)
		expectSize(suite.RunningVMI(ctx, ns, again.Name))
	}, SpecTimeout(40*time.Minute))

	It("is found on the claim that a DataSource refers to", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		size := &v1beta1.VirtualMachineInstancetype{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "size"}}
		size.Spec.CPU.Guest, size.Spec.Memory.Guest = 1, resource.MustParse("144Mi")
		golden := fixture.DataVolume(ns, "golden", "16Mi")
		golden.Labels = map[string]string{
			instancetypeapi.DefaultInstancetypeLabel: size.Name, instancetypeapi.DefaultInstancetypeKindLabel: "VirtualMachineInstancetype",
		}
		source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "golden"}}
		source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: ns, Name: "golden"}
		suite.Create(ctx, size, golden, source)
		suite.DataVolume(ctx, ns, "golden", cdiv1.Succeeded)
		disk := fixture.DataVolume(ns, "data", "16Mi")
		disk.Spec.Source, disk.Spec.SourceRef = nil, &cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Name: source.Name}
		vm := fixture.VM(ns, "found", fixture.ContainerDisk(suite.TinyImage()), fixture.Template("data", disk), fixture.Sizes("", ""))
		vm.Spec.Instancetype, vm.Spec.Preference = &virtv1.InstancetypeMatcher{InferFromVolume: "data"}, nil
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, vm.Name)
		Expect(vmi.Spec.Domain.Memory.Guest.String()).To(Equal("144Mi"))
	}, SpecTimeout(25*time.Minute))
})
