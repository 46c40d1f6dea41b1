package populator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture"
)

// input is a case's file.
type input struct {
	Claim   corev1.PersistentVolumeClaim `json:"claim"`
	Import  *cdiv1.VolumeImportSource    `json:"import,omitempty"`
	Upload  *cdiv1.VolumeUploadSource    `json:"upload,omitempty"`
	Clone   *cdiv1.VolumeCloneSource     `json:"clone,omitempty"`
	InPlace bool                         `json:"inPlace,omitempty"`
}

func TestDataVolumesOfClaims(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, name := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".in.yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var in input
			if err := yaml.UnmarshalStrict(data, &in); err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(buildPrime(primeInput{Claim: &in.Claim, Import: in.Import, Upload: in.Upload, Clone: in.Clone, InPlace: in.InPlace}))
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, strings.TrimSuffix(name, ".in.yaml")+".out.yaml", got)
		})
	}
}
