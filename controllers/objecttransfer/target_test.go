package objecttransfer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture"
)

// input is a case: what is moved, and where to.
type input struct {
	DataVolume *cdiv1.DataVolume            `json:"dataVolume,omitempty"`
	Claim      corev1.PersistentVolumeClaim `json:"claim"`
	Volume     corev1.PersistentVolume      `json:"volume"`
	Target     types.NamespacedName         `json:"target"`
}

// TestTargets compares what is made of each case with what was made before: what the transfer remembers, and the target.
func TestTargets(t *testing.T) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".in.yaml")
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var in input
			if err := yaml.UnmarshalStrict(data, &in); err != nil {
				t.Fatal(err)
			}
			remembered, err := newRecord(in.DataVolume, &in.Claim, &in.Volume).data()
			if err != nil {
				t.Fatal(err)
			}
			kind := kindClaim
			if in.DataVolume != nil {
				kind = kindDataVolume
			}
			rec, err := readRecord(kind, remembered)
			if err != nil {
				t.Fatal(err)
			}
			made := []any{remembered, newClaim(rec, in.Target, "move")}
			if in.DataVolume != nil {
				made = append(made, newDataVolume(rec, in.Target, "move"))
			}
			var got strings.Builder
			for _, object := range made {
				text, err := yaml.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString("---\n" + string(text))
			}
			fixture.Golden(t, name+".out.yaml", got.String())
		})
	}
}

func TestARecordThatSaysTooLittleIsNone(t *testing.T) {
	claim := `{"metadata":{"name":"disk","uid":"1"}}`
	for name, c := range map[string]struct {
		kind string
		data map[string]string
	}{
		"nothing":                         {kindClaim, nil},
		"no volume":                       {kindClaim, map[string]string{dataSource: claim}},
		"no claim":                        {kindClaim, map[string]string{dataSource: "null", dataVolume: "pv"}},
		"a claim of no uid":               {kindClaim, map[string]string{dataSource: "{}", dataVolume: "pv"}},
		"a DataVolume without its claim":  {kindDataVolume, map[string]string{dataSource: claim, dataVolume: "pv"}},
		"a claim without its DataVolume":  {kindDataVolume, map[string]string{dataBacking: claim, dataVolume: "pv"}},
		"a DataVolume that is no object":  {kindDataVolume, map[string]string{dataSource: "[]", dataBacking: claim, dataVolume: "pv"}},
		"a claim, cut off in the writing": {kindClaim, map[string]string{dataSource: claim[:10], dataVolume: "pv"}},
	} {
		if rec, err := readRecord(c.kind, c.data); err == nil {
			t.Errorf("%s: read as %+v", name, rec)
		}
	}
}
