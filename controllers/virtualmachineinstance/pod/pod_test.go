package pod

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/kubevirtconfig"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// options are the facts of a case that are not in its VMI, in the VMI's annotations.
func inputOf(t *testing.T, data []byte) Input {
	t.Helper()
	vmi := &virtv1.VirtualMachineInstance{}
	if err := yaml.UnmarshalStrict(data, vmi); err != nil {
		t.Fatal(err)
	}
	in := Input{
		VMI: vmi, LauncherImage: "registry.local/slipway-launcher:1", ProvisionerImage: "registry.local/slipway:1",
		PullPolicy: corev1.PullIfNotPresent, CPURatio: 10, MemoryOvercommit: 100, Claims: map[string]Claim{},
		KVM: vmi.Annotations["test/kvm"] == "true", VhostNet: vmi.Annotations["test/vhost-net"] == "true",
		ImageVolumes: vmi.Annotations["test/image-volumes"] == "true",
		LimitCPU:     vmi.Annotations["test/limit-cpu"] == "true",
		RuntimeClass: vmi.Annotations["test/runtime-class"],

		AttachmentResources: kubevirtconfig.ContainerResources(&virtv1.KubeVirt{}, virtv1.HotplugAttachment),
	}
	if ratio := vmi.Annotations["test/overhead-ratio"]; ratio != "" {
		var err error
		if in.OverheadRatio, err = strconv.ParseFloat(ratio, 64); err != nil {
			t.Fatal(err)
		}
	}
	if profile := vmi.Annotations["test/seccomp"]; profile != "" {
		in.Seccomp = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &profile}
	}
	if label := vmi.Annotations["test/node-selector"]; label != "" {
		in.NodeSelectors = map[string]string{label: "cluster", "tier": "cluster"}
	}
	if KeepsState(vmi) {
		in.State = "persistent-state-for-" + vmi.Name + "-x7b2k"
	}
	for _, volume := range vmi.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			in.Claims[volume.Name] = Claim{Name: volume.PersistentVolumeClaim.ClaimName, ReadOnly: volume.PersistentVolumeClaim.ReadOnly}
		case volume.Ephemeral != nil:
			claim := volume.Ephemeral.PersistentVolumeClaim
			in.Claims[volume.Name] = Claim{Name: claim.ClaimName, ReadOnly: claim.ReadOnly, Base: true, Block: strings.HasPrefix(volume.Name, "block")}
		case volume.DataVolume != nil:
			in.Claims[volume.Name] = Claim{Name: volume.DataVolume.Name, Block: strings.HasPrefix(volume.Name, "block")}
		}
	}
	return in
}

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".in.yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in := inputOf(t, data)
			build := Launcher
			if in.VMI.Annotations["test/provisioner"] == "true" {
				build = Provisioner
			}
			if volume := in.VMI.Annotations["test/attachment"]; volume != "" {
				build = func(in Input) (*corev1.Pod, error) { return Attachment(in, "node1", volume, in.Claims[volume]), nil }
			}
			if volume := in.VMI.Annotations["test/attachment-trigger"]; volume != "" {
				build = func(in Input) (*corev1.Pod, error) {
					return AttachmentTrigger(in, "node1", volume, in.Claims[volume]), nil
				}
			}
			pod, err := build(in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, strings.TrimSuffix(file, ".in.yaml")+".out.yaml", got)
		})
	}
}

func TestAVMIWithoutMemoryIsAnError(t *testing.T) {
	_, err := Launcher(Input{VMI: &virtv1.VirtualMachineInstance{}})
	if err == nil || !strings.Contains(err.Error(), "no memory requested") {
		t.Errorf("got %v", err)
	}
}

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 62) + "-b"
	for name, c := range map[string]struct{ vmi, hostname, want string }{
		"the VMI's name":                      {"web", "", "web"},
		"the hostname, when there is one":     {"web", "www", "www"},
		"the name up to its first dot":        {"web.example", "", "web"},
		"a long name cut without a last dash": {long, "", strings.Repeat("a", 62)},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &virtv1.VirtualMachineInstance{}
			vmi.Name, vmi.Spec.Hostname = c.vmi, c.hostname
			if got := Hostname(vmi); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
