package launcher

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/launcher/disks"
	"github.com/slipway-vm/slipway/runtime/launcher/virtiofs"
)

func TestSharesAreTheFoldersOfVolumes(t *testing.T) {
	claim := &v1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	read := claim.DeepCopy()
	read.ReadOnly = true
	sources := map[string]v1.VolumeSource{
		"config":  {ConfigMap: &v1.ConfigMapVolumeSource{}},
		"secret":  {Secret: &v1.SecretVolumeSource{}},
		"account": {ServiceAccount: &v1.ServiceAccountVolumeSource{}},
		"facts":   {DownwardAPI: &v1.DownwardAPIVolumeSource{}},
		"claim":   {PersistentVolumeClaim: claim},
		"read":    {PersistentVolumeClaim: read},
		"filled":  {DataVolume: &v1.DataVolumeSource{}},
	}
	want := []virtiofs.Share{
		{Name: "config", Dir: "/secrets/config", Socket: "/s-0", ReadOnly: true},
		{Name: "secret", Dir: "/secrets/secret", Socket: "/s-1", ReadOnly: true},
		{Name: "account", Dir: "/secrets/account", Socket: "/s-2", ReadOnly: true},
		{Name: "facts", Dir: "/secrets/facts", Socket: "/s-3", ReadOnly: true},
		{Name: "claim", Dir: "/claims/claim", Socket: "/s-4"},
		{Name: "read", Dir: "/claims/read", Socket: "/s-5", ReadOnly: true},
		{Name: "filled", Dir: "/claims/filled", Socket: "/s-6"},
	}
	vmi := &v1.VirtualMachineInstance{}
	for _, share := range want {
		vmi.Spec.Domain.Devices.Filesystems = append(vmi.Spec.Domain.Devices.Filesystems, v1.Filesystem{Name: share.Name, Virtiofs: &v1.FilesystemVirtiofs{}})
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: share.Name, VolumeSource: sources[share.Name]})
	}
	paths := disks.Paths{Claims: "/claims", Secrets: "/secrets"}
	if got, err := shares(vmi, paths, "/s-"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	vmi.Spec.Volumes[6].VolumeSource = v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}
	if _, err := shares(vmi, paths, "/s-"); err == nil || !strings.Contains(err.Error(), "filesystem filled: its volume is no folder") {
		t.Errorf("an empty disk: %v", err)
	}
	vmi.Spec.Volumes = vmi.Spec.Volumes[:6]
	if _, err := shares(vmi, paths, "/s-"); err == nil || !strings.Contains(err.Error(), "filesystem filled has no volume") {
		t.Errorf("no volume: %v", err)
	}
}
