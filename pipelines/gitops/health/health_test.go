package health_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/pipelines/gitops/health"
)

// Every file of cases: those written after the code, and those recorded of a cluster.
func TestObjectsAreWhatTheyAreTakenFor(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("cases: %v, %v", files, err)
	}
	argo, flux := map[string]map[health.Status]bool{}, map[string]map[health.State]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cases, err := health.Cases(data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range cases {
			if err := c.Check(); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			group, _, _ := strings.Cut(c.Object["apiVersion"].(string), "/")
			kind := group + "_" + c.Object["kind"].(string)
			if argo[kind] == nil {
				argo[kind], flux[kind] = map[health.Status]bool{}, map[health.State]bool{}
			}
			argo[kind][c.Argo], flux[kind][c.Flux] = true, true
		}
	}
	scripts, err := health.ArgoScripts()
	if err != nil {
		t.Fatal(err)
	}
	for kind := range scripts {
		if !argo[kind][health.Healthy] || !argo[kind][health.Progressing] && !argo[kind][health.Degraded] {
			t.Errorf("%s: there must be cases of a good and of another health: %v", kind, argo[kind])
		}
	}
	expressions, err := health.FluxExpressions()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range expressions {
		group, _, _ := strings.Cut(e.APIVersion, "/")
		seen := flux[group+"_"+e.Kind]
		if !seen[health.Current] || !seen[health.InProgress] || e.Failed != "" && !seen[health.Failed] {
			t.Errorf("%s: there must be cases of every state: %v", e.Kind, seen)
		}
	}
}

// A wrong expectation is noticed: the check can fail.
func TestAWrongExpectationIsNoticed(t *testing.T) {
	object := map[string]any{"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": map[string]any{"name": "x"}, "status": map[string]any{"phase": "Failed"}}
	for _, c := range []struct {
		wrong health.Case
		want  string
	}{
		{health.Case{Argo: health.Healthy, Object: object}, "takes it for Degraded"},
		{health.Case{Flux: health.Current, Object: object}, "takes it for Failed"},
		{health.Case{Flux: health.None, Object: object}, "though it says nothing yet"},
		{health.Case{Argo: health.Healthy, Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}, "has no script for Pod"},
		{health.Case{Flux: health.Current, Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}, "has no expressions for v1 Pod"},
	} {
		if err := c.wrong.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one that says %q", err, c.want)
		}
	}
}
