//go:build integration

package pod

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// An API server takes every pod of the golden files, and finds those with processors of their own
// to be of the class that gets them.
func TestTheGoldenPodsAreValid(t *testing.T) {
	server, err := client.New(apiserver.Start(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	guaranteed := map[string]bool{"dedicated": true, "realtime": true}
	files, err := filepath.Glob("testdata/*.out.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".out.yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{}
			if err := yaml.UnmarshalStrict(data, pod); err != nil {
				t.Fatal(err)
			}
			pod.Namespace, pod.Spec.PriorityClassName, pod.Spec.RuntimeClassName = "default", "", nil // what the server has
			if err := server.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			if got := pod.Status.QOSClass == corev1.PodQOSGuaranteed; got != guaranteed[name] {
				t.Errorf("the pod's class is %s", pod.Status.QOSClass)
			}
		})
	}
}
