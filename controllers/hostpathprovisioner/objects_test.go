package hostpathprovisioner

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestObjects(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.yaml")
	check(t, err)
	for _, input := range inputs {
		if strings.HasSuffix(input, ".out.yaml") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(input), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(input)
			check(t, err)
			var object hppv1beta1.HostPathProvisioner
			check(t, yaml.UnmarshalStrict(data, &object))
			documents := []any{csiDriver()}
			for _, class := range storageClasses(object.Spec) {
				documents = append(documents, class)
			}
			node := &corev1.Node{}
			node.Name = "node-1"
			for _, pool := range object.Spec.StoragePools {
				if pool.PVCTemplate != nil {
					h := holder{pool, node}
					documents = append(documents, h.claim("slipway"), h.deployment(&object, Options{Namespace: "slipway", Image: "registry.local/slipway:1"}))
				}
			}
			var got bytes.Buffer
			for _, document := range documents {
				out, err := yaml.Marshal(document)
				check(t, err)
				got.WriteString("---\n")
				got.Write(out)
			}
			fixture.Golden(t, strings.TrimSuffix(input, ".yaml")+".out.yaml", got.Bytes())
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
