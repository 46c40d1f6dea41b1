//go:build e2e

package lifecycle

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// driveData is read from a configuration drive.
const driveData = "#cloud-config\nruncmd:\n  - echo from-config-drive > /run/proof\n"

// mountDisc mounts the disc labelled $1 at /mnt/$1.
const mountDisc = `d() { mkdir -p "/mnt/$1" && mount -r "$(findfs "LABEL=$1")" "/mnt/$1"; }; `

var _ = Describe("a guest with volumes of every kind", func() {
	It("finds on them what they were made of, and shares a claim that nobody writes", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
		settings := &corev1.ConfigMap{ObjectMeta: meta("settings"), Data: map[string]string{"color": "blue", "a-rather-long-name.conf": "on=1\n"}}
		suite.Create(ctx, settings,
			&corev1.Secret{ObjectMeta: meta("passwords"), StringData: map[string]string{"root": "hush-hush"}},
			&corev1.Secret{ObjectMeta: meta("seed"), StringData: map[string]string{"userdata": driveData, "networkData": `{"links":[]}`}},
			&corev1.Secret{ObjectMeta: meta("keys"), StringData: map[string]string{"jane": "ssh-ed25519 AAAA jane"}},
			&corev1.ServiceAccount{ObjectMeta: meta("reader")},
			fixture.DataVolume(ns, "golden", "24Mi"), fixture.DataVolume(ns, "golden-block", "32Mi", fixture.Block()))
		suite.DataVolume(ctx, ns, "golden", cdiv1.Succeeded)
		suite.DataVolume(ctx, ns, "golden-block", cdiv1.Succeeded)

		first := fixture.VM(ns, "first", fixture.ContainerDisk(suite.TinyImage()), overlays(), discs(), tagged("uplink"), keysOnDrive("keys"))
		first.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web"}
		suite.Create(ctx, first)
		vmi := suite.RunningVMI(ctx, ns, "first")
		expectNoWarnings(ctx, ns)

		By("reading discs of ConfigMap, Secret, downward API and service account")
		Expect(suite.Shell(ctx, vmi, mountDisc+"d settings; cat /mnt/settings/color /mnt/settings/a-rather-long-name.conf")).To(Equal("blueon=1"))
		Expect(suite.Shell(ctx, vmi, mountDisc+"d OEMDRV; cat /mnt/OEMDRV/root")).To(Equal("hush-hush"))
		Expect(suite.Shell(ctx, vmi, mountDisc+"d facts; cat /mnt/facts/pod/labels")).To(ContainSubstring(`app="web"`))
		Expect(suite.Shell(ctx, vmi, mountDisc+"d nothing; ls -A /mnt/nothing")).To(BeEmpty(), "the optional ConfigMap does not exist")
		token := suite.Shell(ctx, vmi, mountDisc+"d cfgdata; cat /mnt/cfgdata/token")
		Expect(suite.Shell(ctx, vmi, "cat /mnt/cfgdata/namespace")).To(Equal(ns))
		expectUser(ctx, token, "system:serviceaccount:"+ns+":reader")

		By("being configured by its configuration drive")
		Expect(suite.Shell(ctx, vmi, "until [ -e /run/seed-done ]; do sleep 1; done; cat /run/proof; hostname")).To(Equal("from-config-drive\nfirst"))
		Expect(suite.Shell(ctx, vmi, "cat /run/seed/openstack/latest/network_data.json")).To(Equal(`{"links":[]}`))
		Expect(suite.Shell(ctx, vmi, "cat /root/.ssh/authorized_keys")).To(ContainSubstring("ssh-ed25519 AAAA jane"))
		expectTold(ctx, vmi)

		By("keeping what is secret out of the API")
		told, err := json.Marshal(vmi)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(told)).NotTo(Or(ContainSubstring("hush-hush"), ContainSubstring("from-config-drive")))

		By("writing to overlays")
		Expect(suite.Shell(ctx, vmi, "for d in vdb vdc; do echo mine | dd of=/dev/$d conv=notrunc 2>/dev/null; done; sync; head -c 4 /dev/vdb; head -c 4 /dev/vdc")).To(Equal("minemine"))

		By("starting another on the same claims, after the ConfigMap has changed")
		settings.Data["color"] = "green"
		Expect(suite.World.Client.Update(ctx, settings)).To(Succeed())
		suite.Create(ctx, fixture.VM(ns, "second", fixture.ContainerDisk(suite.TinyImage()), overlays(), disc("settings", settingsDisc())))
		second := suite.RunningVMI(ctx, ns, "second")
		Expect(suite.Shell(ctx, second, mountDisc+"d settings; cat /mnt/settings/color")).To(Equal("green"))
		Expect(suite.Shell(ctx, second, "head -c 512 /dev/vdb | tr -d '\\0'; head -c 512 /dev/vdc | tr -d '\\0'")).To(BeEmpty(), "it sees nothing of what the other one wrote")
		Expect(suite.Shell(ctx, vmi, "head -c 4 /dev/vdb")).To(Equal("mine"))
	}, SpecTimeout(25*time.Minute))
})

// overlays adds vdb and vdc on the claims golden and golden-block.
func overlays() fixture.VMOption {
	overlay := func(claim string) virtv1.VolumeSource {
		return virtv1.VolumeSource{Ephemeral: &virtv1.EphemeralVolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}
	}
	return func(vm *virtv1.VirtualMachine) {
		fixture.Disk("file", overlay("golden"))(vm)
		fixture.Disk("block", overlay("golden-block"))(vm)
	}
}

func settingsDisc() virtv1.VolumeSource {
	return virtv1.VolumeSource{ConfigMap: &virtv1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, VolumeLabel: "settings",
	}}
}

// discs adds a disc of each kind, all as CD-ROMs but the configuration drive.
func discs() fixture.VMOption {
	optional := true
	facts := []corev1.DownwardAPIVolumeFile{{Path: "pod/labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}
	seed := &corev1.LocalObjectReference{Name: "seed"}
	return func(vm *virtv1.VirtualMachine) {
		disc("settings", settingsDisc())(vm)
		disc("secret", virtv1.VolumeSource{Secret: &virtv1.SecretVolumeSource{SecretName: "passwords", VolumeLabel: "OEMDRV"}})(vm)
		disc("maybe", virtv1.VolumeSource{ConfigMap: &virtv1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Optional: &optional, VolumeLabel: "nothing",
		}})(vm)
		disc("account", virtv1.VolumeSource{ServiceAccount: &virtv1.ServiceAccountVolumeSource{ServiceAccountName: "reader"}})(vm)
		disc("facts", virtv1.VolumeSource{DownwardAPI: &virtv1.DownwardAPIVolumeSource{Fields: facts, VolumeLabel: "facts"}})(vm)
		fixture.Disk("drive", virtv1.VolumeSource{CloudInitConfigDrive: &virtv1.CloudInitConfigDriveSource{UserDataSecretRef: seed, NetworkDataSecretRef: seed}})(vm)
	}
}

// disc adds a CD-ROM on the volume that source describes.
func disc(name string, source virtv1.VolumeSource) fixture.VMOption {
	return func(vm *virtv1.VirtualMachine) {
		fixture.Disk(name, source)(vm)
		disks := vm.Spec.Template.Spec.Domain.Devices.Disks
		disks[len(disks)-1].DiskDevice = virtv1.DiskDevice{CDRom: &virtv1.CDRomTarget{Bus: virtv1.DiskBusSATA}}
	}
}

// tagged gives the first interface a tag.
func tagged(tag string) fixture.VMOption {
	return func(vm *virtv1.VirtualMachine) { vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].Tag = tag }
}

// keysOnDrive puts the SSH keys of a Secret on the configuration drive.
func keysOnDrive(secret string) fixture.VMOption {
	key := &virtv1.SSHPublicKeyAccessCredential{
		Source:            virtv1.SSHPublicKeyAccessCredentialSource{Secret: &virtv1.AccessCredentialSecretSource{SecretName: secret}},
		PropagationMethod: virtv1.SSHPublicKeyAccessCredentialPropagationMethod{ConfigDrive: &virtv1.ConfigDriveSSHPublicKeyAccessCredentialPropagation{}},
	}
	return func(vm *virtv1.VirtualMachine) {
		vm.Spec.Template.Spec.AccessCredentials = []virtv1.AccessCredential{{SSHPublicKey: key}}
	}
}

// expectUser makes sure whose a token is.
func expectUser(ctx context.Context, token, user string) {
	GinkgoHelper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	Expect(suite.World.Client.Create(ctx, review)).To(Succeed())
	Expect(review.Status.User.Username).To(Equal(user))
}

// expectTold makes sure that the configuration drive tells where the tagged interface is.
func expectTold(ctx context.Context, vmi *virtv1.VirtualMachineInstance) {
	GinkgoHelper()
	var told struct {
		InstanceID string `json:"instance_id"`
		Devices    []struct {
			Type, Bus, Address, MAC string
			Tags                    []string
		}
	}
	Expect(json.Unmarshal([]byte(suite.Shell(ctx, vmi, "cat /run/seed/openstack/latest/meta_data.json")), &told)).To(Succeed())
	Expect(told.InstanceID).To(Equal(vmi.Name + "." + vmi.Namespace))
	Expect(told.Devices).To(HaveLen(1))
	is := strings.Fields(suite.Shell(ctx, vmi, `basename "$(dirname "$(readlink -f /sys/class/net/eth0/device)")"; cat /sys/class/net/eth0/address`))
	Expect([]string{told.Devices[0].Address, told.Devices[0].MAC}).To(Equal(is))
	Expect(told.Devices[0].Tags).To(Equal([]string{"uplink"}))
}
