package provisioner

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture"
)

// TestVolumes shows for a claim what the driver is asked for, and the PersistentVolume of its answer.
func TestVolumes(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.yaml")
	check(t, err)
	for _, input := range inputs {
		if strings.HasSuffix(input, ".out.yaml") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(input), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(input)
			check(t, err)
			var claim corev1.PersistentVolumeClaim
			check(t, yaml.UnmarshalStrict(data, &claim))
			class := &storagev1.StorageClass{Parameters: map[string]string{"storagePool": "local"}}
			var got bytes.Buffer
			asked, err := request("pvc-1", &claim, class, nil)
			if err != nil {
				got.WriteString("error: " + err.Error() + "\n")
			} else {
				got.Write(asYAML(t, asked))
				got.WriteString("---\n")
				got.Write(asYAML(t, persistentVolume("kubevirt.io.hostpath-provisioner",
					controller.ProvisionOptions{PVName: "pvc-1", PVC: &claim, StorageClass: class},
					&csi.Volume{
						VolumeId: "pvc-1", CapacityBytes: asked.CapacityRange.RequiredBytes, VolumeContext: class.Parameters,
						AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"topology.hostpath.csi/node": "node-1"}}},
					})))
			}
			fixture.Golden(t, strings.TrimSuffix(input, ".yaml")+".out.yaml", got.Bytes())
		})
	}
}

func asYAML(t *testing.T, value any) []byte {
	t.Helper()
	out, err := yaml.Marshal(value)
	check(t, err)
	return out
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
