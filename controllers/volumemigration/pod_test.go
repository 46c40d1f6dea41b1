package volumemigration

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestPods(t *testing.T) {
	const file, device = corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock
	for name, c := range map[string]struct {
		source, target corev1.PersistentVolumeMode
		change         func(*PodInput)
	}{
		"file-to-device": {file, device, func(*PodInput) {}},
		"device-to-file": {device, file, func(in *PodInput) { in.Target.Annotations[datavolume.AnnotationPreallocated] = "true" }},
		"binder":         {file, file, func(in *PodInput) { in.Binder = true }},
		"on-some-of-them": {file, file, func(in *PodInput) {
			in.Workload = cdiconfig.Workload{NodeSelector: map[string]string{"storage": "yes"}, Verbosity: new(int32(4))}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(t)
			in := PodInput{
				VM: f.VM, Move: f.Move, Source: claim("a", "1Gi", c.source), Target: claim("b", "1Gi", c.target), Image: "registry.local/slipway:test", Token: "token",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}},
			}
			c.change(&in)
			pod, err := Pod(in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, filepath.Join("testdata", name+".yaml"), got)
		})
	}
}
