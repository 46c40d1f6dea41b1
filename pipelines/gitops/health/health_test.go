package health_test

import (
	"os"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/pipelines/gitops/health"
)

// The files of cases: those written after the code, and those recorded of a cluster.
var files = []string{"testdata/written.yaml", "testdata/recorded.yaml"}

func TestObjectsAreWhatTheyAreTakenFor(t *testing.T) {
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

// The recorded objects are of a cluster: of every kind that a running installation has, with what it
// writes into them, and with nothing of the machine that it ran on.
func TestRecordedObjectsAreOfEveryKind(t *testing.T) {
	data, err := os.ReadFile("testdata/recorded.yaml")
	if err != nil {
		t.Fatalf("%v; record them: GITOPS_RECORD=1 make e2e E2E=gitops", err)
	}
	cases, err := health.Cases(data)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]map[health.State]bool{}
	for _, c := range cases {
		kind, _ := c.Object["kind"].(string)
		if _, ok := c.Object["status"].(map[string]any); !ok || c.Source != "a cluster" {
			t.Errorf("%s: %s of %s has no status", c.Name, kind, c.Source)
		}
		if seen[kind] == nil {
			seen[kind] = map[health.State]bool{}
		}
		seen[kind][c.Flux] = true
	}
	for kind, states := range map[string][]health.State{
		"HyperConverged": {health.Current}, "HostPathProvisioner": {health.Current}, "VolumeSnapshot": {health.Current},
		"DataVolume": {health.Current}, "DataSource": {health.InProgress, health.Current, health.Failed},
		"VirtualMachine": {health.Current}, "PipelineRun": {health.Current, health.Failed},
	} {
		for _, state := range states {
			if !seen[kind][state] {
				t.Errorf("no %s that is %s is recorded: %v", kind, state, seen[kind])
			}
		}
	}
	if strings.Contains(string(data), "/.cluster/") {
		t.Error("a path of the machine is in it")
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
