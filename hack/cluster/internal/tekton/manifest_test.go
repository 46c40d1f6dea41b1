package tekton

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

func localImages() Images {
	images := Images{Programs: map[string]string{}, Shell: "registry.local/busybox:1"}
	for _, p := range []string{"controller", "entrypoint", "nop", "resolvers", "webhook"} {
		images.Programs[p] = "registry.local/tekton-" + p + ":1"
	}
	return images
}

func TestManifestsFitTheLocalCluster(t *testing.T) {
	objects, err := Objects(os.DirFS("testdata/config"), "v1.15.0", localImages())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, o := range objects {
		b, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(b))
	}
	golden := filepath.Join("testdata", "fitted.yaml")
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("objects differ from %s (write it anew with -update):\n%s", golden, out.String())
	}
}

func TestProgramWithoutImageIsNamed(t *testing.T) {
	files := fstest.MapFS{"d.yaml": {Data: []byte("kind: Deployment\nspec: {template: {spec: {containers: [{image: 'ko://github.com/tektoncd/pipeline/cmd/new'}]}}}\n")}}
	_, err := Objects(files, "v1", localImages())
	if err == nil || !strings.Contains(err.Error(), "cmd/new") || !strings.Contains(err.Error(), "d.yaml") {
		t.Errorf("error %v, want one that names the file and the program", err)
	}
}
