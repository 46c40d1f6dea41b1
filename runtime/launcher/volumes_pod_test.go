//go:build integration

package launcher_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// put makes a file of the pod's private folder, as the kubelet mounts it.
func (p *pod) put(path, content string) {
	p.t.Helper()
	full := filepath.Join(p.dir, "private", path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

// TestVolumesOfFilesAndOverlays shows what a guest finds on discs of files and on an overlay
// over a claim that nobody may write.
func TestVolumesOfFilesAndOverlays(t *testing.T) {
	p := start(t)
	base := "the golden image" + strings.Repeat("\x00", 1<<20)
	p.put("vmi-disks/golden/disk.img", base)
	p.put("secret/settings/color", "blue")
	p.put("secret/settings/a-name-longer-than-eight-and-three.conf", "on")
	p.put("secret/drive/userData", "#cloud-config\nruncmd:\n- echo driven > /tmp/seed\n")
	p.put("access-credentials/0/..data/jane", "ssh-ed25519 AAAA jane\n")
	p.connected()
	vmi := guest()
	vmi.Spec.AccessCredentials = []v1.AccessCredential{{SSHPublicKey: &v1.SSHPublicKeyAccessCredential{
		PropagationMethod: v1.SSHPublicKeyAccessCredentialPropagationMethod{ConfigDrive: &v1.ConfigDriveSSHPublicKeyAccessCredentialPropagation{}},
	}}}
	vmi.Spec.Volumes[1] = v1.Volume{Name: "seed", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{VolumeLabel: "nothing"}}}
	vmi.Spec.Volumes[2] = v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{}}}
	vmi.Spec.Volumes[2].CloudInitConfigDrive.UserDataSecretRef = &corev1.LocalObjectReference{Name: "user"}
	vmi.Spec.Volumes[1].Name, vmi.Spec.Volumes[2].Name = "maybe", "drive"
	vmi.Spec.Volumes = append(vmi.Spec.Volumes,
		v1.Volume{Name: "settings", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
		v1.Volume{Name: "golden", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "g"}}}})
	disks := &vmi.Spec.Domain.Devices.Disks
	*disks = (*disks)[:1]
	for _, name := range []string{"maybe", "drive", "settings", "golden"} { // vdb to vde
		*disks = append(*disks, v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
	}
	vmi.Spec.Domain.Devices.Interfaces[0].Tag = "uplink"
	if err := os.Mkdir(filepath.Join(p.dir, "private", "secret", "maybe"), 0o755); err != nil {
		t.Fatal(err)
	}

	state, err := p.sync(vmi)
	if err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("state %+v, %v", state, err)
	}
	p.until("the agent's report", agentUp)
	p.exec("until [ -e /run/seed-done ]; do sleep 0.2; done")
	for command, want := range map[string]string{
		"cat /root/.ssh/authorized_keys": "ssh-ed25519 AAAA jane\n",
		"cat /tmp/seed; hostname":        "driven\ntiny\n",
		"mkdir /mnt/s; mount -r $(findfs LABEL=cfgdata) /mnt/s; cat /mnt/s/color /mnt/s/a-name-longer-than-eight-and-three.conf":               "blueon",
		"mkdir /mnt/n; mount -r $(findfs LABEL=nothing) /mnt/n; ls -A /mnt/n":                                                                  "",
		"head -c 16 /dev/vde; echo over the base | dd of=/dev/vde conv=notrunc 2>/dev/null; sync; head -c 13 /dev/vde":                         "the golden imageover the base",
		`grep -c "\"address\":\"$(basename $(dirname $(readlink -f /sys/class/net/eth0/device)))\"" /run/seed/openstack/latest/meta_data.json`: "1\n",
		`grep -c '"mac":"02:00:00:00:00:01","tags":\["uplink"\]' /run/seed/openstack/latest/meta_data.json`:                                    "1\n",
	} {
		if got := p.exec(command); got.Stdout != want {
			t.Errorf("%s: %+v, want %q", command, got, want)
		}
	}
	if left, err := os.ReadFile(filepath.Join(p.dir, "private", "vmi-disks", "golden", "disk.img")); err != nil || string(left) != base {
		t.Errorf("the base of the overlay has changed (%v)", err)
	}
}
