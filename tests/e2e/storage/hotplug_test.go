//go:build e2e

package storage

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// bySerial prints the name of the guest's disk with the serial number.
const bySerial = `disk() { for d in /sys/block/*; do
  s=$(cat $d/serial 2>/dev/null || tail -c +5 $d/device/vpd_pg80 2>/dev/null | tr -d '\0')
  [ "$s" = "$1" ] && { echo /dev/${d##*/}; return; }
done; }
`

var _ = Describe("disks of a running VM", func() {
	It("come and go by request and by its spec, and keep what was written", Label("alone"), func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		for _, name := range []string{"asked", "declared", "disc"} {
			suite.Create(ctx, fixture.DataVolume(ns, name, "64Mi"))
		}
		drive := func(vm *virtv1.VirtualMachine) {
			disks := &vm.Spec.Template.Spec.Domain.Devices.Disks
			*disks = append(*disks, virtv1.Disk{Name: "drive", DiskDevice: virtv1.DiskDevice{CDRom: &virtv1.CDRomTarget{Bus: virtv1.DiskBusSATA}}})
		}
		vm := fixture.VM(ns, "plugged", fixture.ContainerDisk(suite.TinyImage()), drive)
		suite.Create(ctx, vm)
		vmi := suite.RunningVMI(ctx, ns, "plugged")
		for _, name := range []string{"asked", "declared", "disc"} {
			suite.DataVolume(ctx, ns, name, cdiv1.Succeeded)
		}

		By("adding a volume by request, for this run")
		added := &virtv1.AddVolumeOptions{
			Name:         "asked",
			Disk:         &virtv1.Disk{Serial: "ASKED", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: virtv1.DiskBusSCSI}}},
			VolumeSource: &virtv1.HotplugVolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "asked"}},
		}
		dry := *added
		dry.DryRun = []string{metav1.DryRunAll}
		Expect(put(ctx, ns, "virtualmachineinstances", "addvolume", &dry)).To(Succeed())
		Expect(put(ctx, ns, "virtualmachineinstances", "addvolume", added)).To(Succeed())
		err := put(ctx, ns, "virtualmachineinstances", "addvolume", added)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(err.Error()).To(ContainSubstring("Unable to add volume [asked] because volume with that name already exists"))
		status := volumeIs(ctx, ns, "asked", virtv1.VolumeReady)
		Expect(status.HotplugVolume.AttachPodName).To(HavePrefix("hp-volume-"))
		Expect(status.PersistentVolumeClaimInfo.ClaimName).To(Equal("asked"))
		suite.Shell(ctx, vmi, bySerial+`set -e; for i in $(seq 1500); do d=$(disk ASKED); [ -n "$d" ] && break; sleep 0.2; done; mkfs.ext2 $d || mke2fs $d; mkdir -p /mnt; mount $d /mnt; echo kept > /mnt/file; umount /mnt; sync`)

		By("adding one to the VM's spec, and a disc to its drive, while virt-handler is away")
		restartHandler(ctx)
		changeVM(ctx, ns, func(spec *virtv1.VirtualMachineInstanceSpec) {
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, virtv1.Disk{
				Name: "declared", Serial: "DECLARED", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: virtv1.DiskBusVirtio}},
			})
			spec.Volumes = append(spec.Volumes, pluggable("declared", "declared"), pluggable("drive", "disc"))
		})
		volumeIs(ctx, ns, "declared", virtv1.VolumeReady)
		volumeIs(ctx, ns, "drive", virtv1.VolumeReady)
		Expect(suite.Shell(ctx, vmi, bySerial+`for i in $(seq 1500); do d=$(disk DECLARED); [ -n "$d" ] && [ "$(cat /sys/block/sr0/size)" = 131072 ] && break; sleep 0.2; done; [ -n "$d" ] && [ -n "$(disk ASKED)" ] && cat /sys/block/sr0/size`)).
			To(Equal("131072"), "the disc has 64 MiB, and the first disk is still there")
		Expect(machine(ctx, ns).Status.Conditions).NotTo(ContainElement(HaveField("Type", virtv1.VirtualMachineRestartRequired)))

		By("removing all of them")
		Expect(put(ctx, ns, "virtualmachineinstances", "removevolume", &virtv1.RemoveVolumeOptions{Name: "asked"})).To(Succeed())
		changeVM(ctx, ns, func(spec *virtv1.VirtualMachineInstanceSpec) {
			spec.Domain.Devices.Disks = spec.Domain.Devices.Disks[:len(spec.Domain.Devices.Disks)-1]
			spec.Volumes = spec.Volumes[:len(spec.Volumes)-2]
		})
		for _, name := range []string{"asked", "declared", "drive"} {
			volumeIs(ctx, ns, name, "")
		}
		Eventually(ctx, func() string { return suite.Shell(ctx, vmi, bySerial+`echo "[$(disk ASKED)$(disk DECLARED)]"`) }, suite.BoundEnd, time.Second).
			Should(Equal("[]"), "what the guest's kernel has of them")
		Eventually(func(g Gomega) {
			var pods corev1.PodList
			g.Expect(suite.World.Client.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{"kubevirt.io": "hotplug-disk"})).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty(), "nothing holds the claims any more")
		}).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())

		By("adding the first one again, for good")
		Expect(put(ctx, ns, "virtualmachines", "addvolume", added)).To(Succeed())
		volumeIs(ctx, ns, "asked", virtv1.VolumeReady)
		Expect(suite.Shell(ctx, vmi, bySerial+`for i in $(seq 1500); do d=$(disk ASKED); [ -n "$d" ] && break; sleep 0.2; done; mount $d /mnt && cat /mnt/file; umount /mnt`)).To(Equal("kept"))
		Expect(machine(ctx, ns).Spec.Template.Spec.Volumes).To(ContainElement(HaveField("Name", "asked")))
	}, SpecTimeout(30*time.Minute))
})

var _ = Describe("a block device of a running VM", func() {
	It("comes and goes, and keeps what was written", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "device", "64Mi", fixture.Block()))
		suite.Create(ctx, fixture.VM(ns, "plugged", fixture.ContainerDisk(suite.TinyImage())))
		vmi := suite.RunningVMI(ctx, ns, "plugged")
		suite.DataVolume(ctx, ns, "device", cdiv1.Succeeded)
		added := &virtv1.AddVolumeOptions{
			Name:         "device",
			Disk:         &virtv1.Disk{Serial: "DEVICE", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: virtv1.DiskBusSCSI}}},
			VolumeSource: &virtv1.HotplugVolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "device"}},
		}
		const find = bySerial + `for i in $(seq 1500); do d=$(disk DEVICE); [ -n "$d" ] && break; sleep 0.2; done; `
		for _, run := range []struct{ script, want string }{
			{`echo kept | dd of=$d conv=fsync 2>/dev/null; echo $(cat /sys/block/${d##*/}/size)`, "131072"},
			{`head -c 4 $d`, "kept"},
		} {
			Expect(put(ctx, ns, "virtualmachineinstances", "addvolume", added)).To(Succeed())
			status := volumeIs(ctx, ns, "device", virtv1.VolumeReady)
			Expect(status.HotplugVolume.AttachPodName).To(HavePrefix("hp-volume-"))
			Expect(suite.Shell(ctx, vmi, find+run.script)).To(Equal(run.want))
			Expect(put(ctx, ns, "virtualmachineinstances", "removevolume", &virtv1.RemoveVolumeOptions{Name: "device"})).To(Succeed())
			volumeIs(ctx, ns, "device", "")
		}
	}, SpecTimeout(20*time.Minute))
})

func pluggable(name, claim string) virtv1.Volume {
	return virtv1.Volume{Name: name, VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: claim, Hotpluggable: true}}}
}

// put asks for a subresource of the VM, or of its instance.
func put(ctx context.Context, ns, resource, verb string, options any) error {
	GinkgoHelper()
	config := rest.CopyConfig(suite.World.Config)
	config.APIPath, config.GroupVersion = "/apis", &virtv1.SubresourceGroupVersions[0]
	config.NegotiatedSerializer = clientscheme.Codecs.WithoutConversion()
	httpClient, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	raw, err := rest.RESTClientForConfigAndClient(config, httpClient)
	Expect(err).NotTo(HaveOccurred())
	body, err := json.Marshal(options)
	Expect(err).NotTo(HaveOccurred())
	return raw.Verb(http.MethodPut).Namespace(ns).Resource(resource).Name("plugged").SubResource(verb).Body(body).Do(ctx).Error()
}

// volumeIs waits until the volume's status is in the phase; with none until it is gone.
func volumeIs(ctx context.Context, ns, name string, want virtv1.VolumePhase) virtv1.VolumeStatus {
	GinkgoHelper()
	var found virtv1.VolumeStatus
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "plugged"}}
	err := suite.World.Await(ctx, GinkgoWriter, vmi, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		for _, status := range obj.(*virtv1.VirtualMachineInstance).Status.VolumeStatus {
			if status.Name == name {
				found = status
				return string(status.Phase) + " " + status.Reason + ": " + status.Message, status.Phase == want, nil
			}
		}
		return "no volume " + name, want == "", nil
	})
	Expect(err).NotTo(HaveOccurred())
	return found
}

func machine(ctx context.Context, ns string) *virtv1.VirtualMachine {
	GinkgoHelper()
	vm := &virtv1.VirtualMachine{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "plugged"}, vm)).To(Succeed())
	return vm
}

func changeVM(ctx context.Context, ns string, change func(*virtv1.VirtualMachineInstanceSpec)) {
	GinkgoHelper()
	vm := machine(ctx, ns)
	changed := vm.DeepCopy()
	change(&changed.Spec.Template.Spec)
	Expect(suite.World.Client.Patch(ctx, changed, client.MergeFrom(vm))).To(Succeed())
}

// restartHandler deletes the pods of virt-handler, and leaves it to the cluster to start others.
func restartHandler(ctx context.Context) {
	GinkgoHelper()
	Expect(suite.World.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(names.InstallNamespace),
		client.MatchingLabels{"kubevirt.io": "virt-handler"})).To(Succeed())
}
