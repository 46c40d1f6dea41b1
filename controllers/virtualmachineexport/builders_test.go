package virtualmachineexport

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

// input is a case's file: an export, and its volumes.
type input struct {
	Export  exportv1.VirtualMachineExport `json:"export"`
	Volumes []Volume                      `json:"volumes"`
}

// began is when the exports of tests were made.
var began = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

func TestServers(t *testing.T) {
	cases, err := filepath.Glob(filepath.Join("testdata", "*.in.yaml"))
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
			in.Export.UID, in.Export.CreationTimestamp = "0000-export", metav1.NewTime(began)
			var got []byte
			for _, object := range []any{
				buildPod(podInput{
					Export: &in.Export, Volumes: in.Volumes, Image: "registry.local/slipway:test", Certificate: "certificate", Authority: "authority\n",
				}),
				buildService(&in.Export),
			} {
				one, err := yaml.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				got = append(append(got, "---\n"...), one...)
			}
			compare(t, strings.TrimSuffix(name, ".in.yaml")+".out.yaml", got)
		})
	}
}

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update writes it):\n%s", path, got)
	}
}
