package tasks_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tasks"
)

// Tekton's webhook refuses fields that it does not know, and steps that it must look up in a registry.
func TestManifestsAreWhatTektonTakes(t *testing.T) {
	found := 0
	for _, task := range tasks.All() {
		data, err := fs.ReadFile(tasks.Manifests, task.Name+"/task.yaml")
		if err != nil {
			t.Fatal(err)
		}
		reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(document), "kind: Task\n") {
				continue
			}
			found++
			checkTask(t, task.Name, document)
		}
	}
	if found != len(tasks.All()) {
		t.Fatalf("%d Tasks in the manifests of %d", found, len(tasks.All()))
	}
}

func checkTask(t *testing.T, name string, document []byte) {
	t.Helper()
	var decoded tektonv1.Task
	if err := strict.UnmarshalStrict(document, &decoded); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	decoded.SetDefaults(t.Context())
	if err := decoded.Validate(t.Context()); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	for _, step := range decoded.Spec.Steps {
		c := step.SecurityContext
		if len(step.Command) == 0 || step.Script != "" {
			t.Errorf("%s: a step names its command, so that no registry is asked for it", name)
		}
		if c == nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.SeccompProfile == nil || len(c.Capabilities.Drop) != 1 {
			t.Errorf("%s: step %s is not fit for restricted Pod Security: %+v", name, step.Name, c)
		}
	}
}
