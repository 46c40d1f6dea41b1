package bundle_test

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/pipelines/gitops/bundle"
	"github.com/slipway-vm/slipway/tasks"
)

var images = map[string]string{
	"ghcr.io/slipway-vm/slipway":         "registry.example.com/slipway@sha256:" + strings.Repeat("a", 64),
	"ghcr.io/slipway-vm/slipway-guestfs": "registry.example.com/guestfs@sha256:" + strings.Repeat("b", 64),
}

func allTasks(t *testing.T) []bundle.Object {
	t.Helper()
	objects, err := bundle.Tasks(images)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// What a registry gives back is what Tekton's contract of bundles asks, and decodes strictly.
func TestABundleKeepsTektonsContract(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	from := bundle.FromBundle(path.Base(server.URL) + "/slipway-tasks:devel")
	pipelines, err := bundle.Pipelines(from)
	if err != nil {
		t.Fatal(err)
	}
	for kind, objects := range map[string][]bundle.Object{"task": allTasks(t), "pipeline": pipelines} {
		image, err := bundle.Image(objects)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(path.Base(server.URL) + "/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, image); err != nil {
			t.Fatal(err)
		}
		pulled, err := remote.Image(ref)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := pulled.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Layers) != len(objects) || len(manifest.Layers) > 20 {
			t.Errorf("%d layers for %d objects", len(manifest.Layers), len(objects))
		}
		for n, described := range manifest.Layers {
			a := described.Annotations
			if a["dev.tekton.image.name"] != objects[n].Name || a["dev.tekton.image.kind"] != kind || a["dev.tekton.image.apiVersion"] != "tekton.dev/v1" {
				t.Errorf("layer %d: annotations %v", n, a)
			}
			checkLayer(t, pulled, described.Digest, kind, objects[n].Name)
		}
	}
}

// checkLayer reads the one file of a layer.
func checkLayer(t *testing.T, image v1.Image, digest v1.Hash, kind, want string) {
	t.Helper()
	layer, err := image.LayerByDigest(digest)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close() //nolint:errcheck // only read
	archive := tar.NewReader(stream)
	if _, err := archive.Next(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(archive)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%s: there is a second file", want)
	}
	if kind == "task" {
		var task tektonv1.Task
		if err := yaml.UnmarshalStrict(text, &task); err != nil || task.Name != want {
			t.Errorf("%s: %v", want, err)
		}
		for _, step := range task.Spec.Steps {
			if !strings.Contains(step.Image, "@sha256:") {
				t.Errorf("%s: image %s", want, step.Image)
			}
		}
		return
	}
	var pipeline tektonv1.Pipeline
	if err := yaml.UnmarshalStrict(text, &pipeline); err != nil || pipeline.Name != want {
		t.Errorf("%s: %v", want, err)
	}
	checkReferences(t, &pipeline, "bundles", "slipway-tasks:devel")
}

// checkReferences makes sure that each task comes from the resolver, and is one that there is.
func checkReferences(t *testing.T, pipeline *tektonv1.Pipeline, resolver, from string) {
	t.Helper()
	known := map[string]bool{}
	for _, task := range tasks.All() {
		known[task.Name] = true
	}
	pipeline.SetDefaults(t.Context())
	if err := pipeline.Validate(t.Context()); err != nil {
		t.Errorf("%s: %v", pipeline.Name, err)
	}
	for _, task := range append(pipeline.Spec.Tasks, pipeline.Spec.Finally...) {
		if task.TaskSpec != nil {
			continue
		}
		params := map[string]string{}
		for _, p := range task.TaskRef.Params {
			params[p.Name] = p.Value.StringVal
		}
		found := params["name"]
		if file := params["pathInRepo"]; file != "" {
			found = strings.TrimSuffix(path.Base(file), ".yaml")
		}
		if string(task.TaskRef.Resolver) != resolver || task.TaskRef.Name != "" || !known[found] {
			t.Errorf("%s, %s: taskRef %+v", pipeline.Name, task.Name, task.TaskRef)
		}
		if !strings.HasSuffix(params["bundle"]+params["namespace"]+params["catalog"]+params["url"], from) {
			t.Errorf("%s, %s: params %v, want from %s", pipeline.Name, task.Name, params, from)
		}
	}
}

// Tasks of a pipeline come from each resolver alike.
func TestPipelinesTakeTasksFromEveryResolver(t *testing.T) {
	for from, r := range map[string]bundle.Resolver{
		"slipway-catalog":                  bundle.FromNamespace("slipway-catalog"),
		"slipway-tasks":                    bundle.FromHub("slipway-tasks", "0.1.0"),
		"https://git.example.com/p/builds": bundle.FromGit("https://git.example.com/p/builds", "main", "tasks"),
		"r.example.com/slipway-tasks:1":    bundle.FromBundle("r.example.com/slipway-tasks:1"),
	} {
		objects, err := bundle.Pipelines(r)
		if err != nil || len(objects) == 0 {
			t.Fatalf("%s: %v, %v", from, objects, err)
		}
		for _, o := range objects {
			text, err := o.YAML()
			if err != nil {
				t.Fatal(err)
			}
			var pipeline tektonv1.Pipeline
			if err := yaml.UnmarshalStrict(text, &pipeline); err != nil {
				t.Fatal(err)
			}
			checkReferences(t, &pipeline, r.Name, from)
		}
	}
}

func TestTheSameObjectsGiveTheSameDigest(t *testing.T) {
	digest := func(objects []bundle.Object) string {
		t.Helper()
		image, err := bundle.Image(objects)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return sum.String()
	}
	first := digest(allTasks(t))
	if second := digest(allTasks(t)); first != second {
		t.Errorf("digests %s and %s", first, second)
	}
	if other := digest(allTasks(t)[1:]); other == first {
		t.Error("a bundle with fewer tasks has the same digest")
	}
}

func TestWhatIsNoBundleIsRefused(t *testing.T) {
	one := allTasks(t)[0]
	many := make([]bundle.Object, 21)
	for n := range many {
		many[n] = one
		many[n].Name = strings.Repeat("x", n+1)
	}
	for want, objects := range map[string][]bundle.Object{"1 to 20 objects, not 21": many, "1 to 20 objects, not 0": nil, "is there twice": {one, one}} {
		if _, err := bundle.Image(objects); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	_, err := bundle.Tasks(map[string]string{"ghcr.io/slipway-vm/slipway": "x"})
	if err == nil || !strings.Contains(err.Error(), "--image ghcr.io/slipway-vm/slipway-guestfs=REFERENCE") {
		t.Errorf("a missing image: %v", err)
	}
}
