package copytemplate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture"
)

func load(t *testing.T, path string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// Each template of testdata is copied into <name>.copy.yaml.
func TestDuplicate(t *testing.T) {
	for name, target := range map[string]client.ObjectKey{
		"common": {Namespace: "team", Name: "copy"}, "own": {Namespace: "team"}, "vmt": {Namespace: "team", Name: "copy"},
	} {
		t.Run(name, func(t *testing.T) {
			source := load(t, filepath.Join("testdata", name+".yaml"))
			before := source.DeepCopy()
			c, err := duplicate(source, target)
			if err != nil {
				t.Fatal(err)
			}
			if target.Name != "" {
				c.named(target.Name)
			}
			got, err := yaml.Marshal(c.template.Object)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, filepath.Join("testdata", name+".copy.yaml"), got)
			if left, _ := yaml.Marshal(source.Object); string(left) != string(mustYAML(t, before)) {
				t.Error("the source was changed")
			}
		})
	}
}

func mustYAML(t *testing.T, object *unstructured.Unstructured) []byte {
	t.Helper()
	data, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDuplicateRefuses(t *testing.T) {
	base := map[string]any{"name": "t", "labels": map[string]any{"template.kubevirt.io/type": "base"}}
	for want, objects := range map[string][]any{
		"template t contains unexpected object: v1, Pod": {map[string]any{"apiVersion": "v1", "kind": "Pod"}},
		"no VM object found in the template":             {},
	} {
		source := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "template.openshift.io/v1", "kind": "Template", "metadata": base, "objects": objects}}
		if _, err := duplicate(source, client.ObjectKey{Namespace: "ns", Name: "c"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// What the API server says of the template that is replaced stays.
func TestReplace(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "template.openshift.io/v1", "kind": "Template", "message": "old", "old": "field",
		"metadata": map[string]any{"name": "t", "uid": "u", "resourceVersion": "7", "labels": map[string]any{"old": "label"}},
	}}
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "x", "kind": "y", "message": "new"}}
	made.SetLabels(map[string]string{"new": "label"})
	replace(live, made)
	want := `apiVersion: template.openshift.io/v1
kind: Template
message: new
metadata:
  labels:
    new: label
  name: t
  resourceVersion: "7"
  uid: u
`
	if got := string(mustYAML(t, live)); got != want {
		t.Errorf("got:\n%s", got)
	}
}
