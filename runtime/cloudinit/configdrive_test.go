package cloudinit_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/cloudinit"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// driven is a VMI with a configuration drive, of an instance type, with a tagged interface.
func driven() *v1.VirtualMachineInstance {
	out := vmi()
	out.Annotations = map[string]string{v1.InstancetypeAnnotation: "small"}
	out.Spec.Hostname = "front"
	out.Spec.Domain.Firmware = &v1.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223"}
	out.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "plain"}, {Name: "net", Tag: "uplink"}}
	out.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "plain-disk"}, {Name: "fast", Tag: "database"}, {Name: "scsi", Tag: "log"}, {Name: "stick", Tag: "key"}, {Name: "away", Tag: "away"}}
	out.Spec.Volumes = []v1.Volume{{Name: "drive", VolumeSource: v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{
		UserData: "#cloud-config", NetworkData: `{"links":[]}`,
	}}}}
	return out
}

// defined is its domain as libvirt has it.
const defined = `<domain type='qemu'><name>x</name><devices>
<disk type='file' device='disk'><target dev='vda' bus='virtio'/><serial>S1</serial><alias name='ua-fast'/><address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x0'/></disk>
<disk type='file' device='disk'><target dev='sda' bus='scsi'/><alias name='ua-scsi'/><address type='drive' controller='0' bus='0' target='0' unit='3'/></disk>
<disk type='file' device='disk'><target dev='sdb' bus='usb'/><alias name='ua-stick'/><address type='usb' bus='0' port='2'/></disk>
<disk type='file' device='disk'><target dev='sdc' bus='sata'/><alias name='ua-plain-disk'/><address type='drive' controller='0' bus='0' target='0' unit='1'/></disk>
<interface type='ethernet'><mac address='02:00:00:00:00:01'/><alias name='ua-plain'/><address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></interface>
<interface type='ethernet'><mac address='02:00:00:00:00:02'/><alias name='ua-net'/><address type='pci' domain='0x0000' bus='0x1a' slot='0x02' function='0x1'/></interface>
</devices></domain>`

func TestTheConfigurationDriveHasTheFieldsLayout(t *testing.T) {
	need.Program(t, "isoinfo", "genisoimage")
	vmi := driven()
	domain := &libvirtxml.Domain{}
	if err := domain.Unmarshal(defined); err != nil {
		t.Fatal(err)
	}
	data, err := cloudinit.FromVMI(vmi, cloudinit.Source(&vmi.Spec.Volumes[0]), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data.Devices, data.PublicKeys = cloudinit.Tagged(vmi, domain), []string{"ssh-ed25519 A", "ssh-ed25519 B"}
	path := filepath.Join(t.TempDir(), "drive.iso")
	if err := cloudinit.WriteConfigDrive(path, data); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"user_data": "#cloud-config", "network_data.json": `{"links":[]}`,
		"meta_data.json": `{"instance_type":"small","instance_id":"web.shop","hostname":"front","uuid":"5d307ca9-b3ef-428c-8861-06e72d69f223",` +
			`"devices":[{"type":"nic","bus":"pci","address":"0000:1a:02.1","mac":"02:00:00:00:00:02","tags":["uplink"]},` +
			`{"type":"disk","bus":"pci","address":"0000:04:00.0","serial":"S1","tags":["database"]},{"type":"disk","bus":"scsi","address":"0:0:0:3","tags":["log"]},` +
			`{"type":"disk","bus":"usb","address":"0:2","tags":["key"]}],"public_keys":{"0":"ssh-ed25519 A","1":"ssh-ed25519 B"}}`,
	} {
		for _, names := range []string{"-R", "-J"} {
			got, err := exec.Command("isoinfo", names, "-x", "/openstack/latest/"+name, "-i", path).Output()
			if err != nil || string(got) != want {
				t.Errorf("%s by %s: %q, %v", name, names, got, err)
			}
		}
	}
}

func TestOnlyATagOnADriveIsTold(t *testing.T) {
	vmi := driven()
	if !cloudinit.TellsDevices(vmi) {
		t.Error("the tag is not told")
	}
	vmi.Spec.Domain.Devices.Interfaces[1].Tag = ""
	if !cloudinit.TellsDevices(vmi) {
		t.Error("the tags of disks are not told")
	}
	vmi.Spec.Domain.Devices.Disks = nil
	if cloudinit.TellsDevices(vmi) || cloudinit.Tagged(vmi, &libvirtxml.Domain{}) != nil {
		t.Error("a device without a tag is told")
	}
}

func TestAVolumeOfAnotherKindHasNoSource(t *testing.T) {
	if got := cloudinit.Source(&v1.Volume{}); got != nil {
		t.Errorf("got %+v", got)
	}
}
