package pod

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// Slipway's own images and the guest's are pulled by the Secrets of both, each of which is named once.
func TestPodsArePulledByTheInstallationsSecretsAndTheGuests(t *testing.T) {
	data, err := os.ReadFile("testdata/disks.in.yaml")
	if err != nil {
		t.Fatal(err)
	}
	in := inputOf(t, data)
	for _, secret := range []string{"guests", "ours"} {
		in.VMI.Spec.Volumes = append(in.VMI.Spec.Volumes, virtv1.Volume{Name: secret, VolumeSource: virtv1.VolumeSource{
			ContainerDisk: &virtv1.ContainerDiskSource{Image: "registry.test/disk:1", ImagePullSecret: secret},
		}})
	}
	named := func(pod *corev1.Pod, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, secret := range pod.Spec.ImagePullSecrets {
			all = append(all, secret.Name)
		}
		return strings.Join(all, " ")
	}
	for ours, want := range map[string][2]string{"": {"quay guests ours", ""}, "ours": {"ours quay guests", "ours"}} {
		in.PullSecrets = nil
		if ours != "" {
			in.PullSecrets = []corev1.LocalObjectReference{{Name: ours}}
		}
		if got := named(Launcher(in)); got != want[0] {
			t.Errorf("with %q the launcher is pulled by %q, want %q", ours, got, want[0])
		}
		for name, got := range map[string]string{
			"provisioner": named(Provisioner(in)),
			"attachment":  named(Attachment(in, "node1", "extra", Claim{Name: "extra"}), nil),
			"trigger":     named(AttachmentTrigger(in, "node1", "extra", Claim{Name: "extra"}), nil),
		} {
			if got != want[1] {
				t.Errorf("with %q the %s is pulled by %q, want %q", ours, name, got, want[1])
			}
		}
	}
}
