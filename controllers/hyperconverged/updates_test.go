package hyperconverged

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

func TestUpdatesOfVMsReachKubeVirt(t *testing.T) {
	methods := func(names ...virtv1.WorkloadUpdateMethod) *hcov1.WorkloadUpdateStrategy {
		return &hcov1.WorkloadUpdateStrategy{WorkloadUpdateMethods: names}
	}
	patch := func(path, value string) string {
		return `[{"op":"add","path":"/spec/workloadUpdateStrategy` + path + `","value":` + value + `}]`
	}
	said := func(methods []any) map[string]any {
		out := map[string]any{"batchEvictionSize": int64(10), "batchEvictionInterval": "1m0s"}
		if methods != nil {
			out["workloadUpdateMethods"] = methods
		}
		return out
	}
	patchedToEvict := said([]any{"Evict"})
	patchedToEvict["batchEvictionSize"] = float64(10) // a patched object is decoded from JSON
	for name, c := range map[string]struct {
		asked     *hcov1.WorkloadUpdateStrategy
		patch     string
		want      map[string]any
		wantError string
	}{
		"nothing":    {want: said(nil)},
		"by restart": {asked: methods(virtv1.WorkloadUpdateMethodEvict), want: said([]any{"Evict"})},
		"in batches": {
			asked: &hcov1.WorkloadUpdateStrategy{BatchEvictionSize: new(3), BatchEvictionInterval: &metav1.Duration{Duration: 90 * time.Second}},
			want:  map[string]any{"batchEvictionSize": int64(3), "batchEvictionInterval": "1m30s"},
		},
		"by a patch":                  {patch: patch("/workloadUpdateMethods", `["Evict"]`), want: patchedToEvict},
		"by live migration":           {asked: methods(virtv1.WorkloadUpdateMethodEvict, virtv1.WorkloadUpdateMethodLiveMigrate), wantError: `spec.workloadUpdateStrategy.workloadUpdateMethods[1]: Invalid value: "LiveMigrate": there is no live migration yet`},
		"by live migration, patched":  {patch: patch("/workloadUpdateMethods", `["LiveMigrate"]`), wantError: `workloadUpdateMethods[0]: Invalid value: "LiveMigrate": there is no live migration yet`},
		"by what nobody knows":        {asked: methods("Shutdown"), wantError: `workloadUpdateMethods[0]: Unsupported value: "Shutdown": supported values: "Evict"`},
		"none at once":                {patch: patch("/batchEvictionSize", "0"), wantError: "workloadUpdateStrategy.batchEvictionSize: Invalid value: 0: it is at least 1"},
		"without a pause":             {asked: &hcov1.WorkloadUpdateStrategy{BatchEvictionInterval: &metav1.Duration{}}, wantError: `workloadUpdateStrategy.batchEvictionInterval: Invalid value: "0s": it is at least 1s`},
		"a pause that is no duration": {patch: patch("/batchEvictionInterval", `"soon"`), wantError: "workloadUpdateStrategy"},
	} {
		t.Run(name, func(t *testing.T) {
			hco := &hcov1.HyperConverged{}
			hco.Name = "kubevirt-hyperconverged"
			hco.Spec.Virtualization.WorkloadUpdateStrategy = c.asked
			if c.patch != "" {
				hco.Annotations = map[string]string{hcov1.AnnotationKubeVirtPatch: c.patch}
			}
			objects, err := operands(hco, testOptions().Values())
			if c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Errorf("got %v, want an error with %q", err, c.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := unstructured.NestedMap(objects[0].Object, "spec", "workloadUpdateStrategy")
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v (%v), want %v", got, err, c.want)
			}
		})
	}
}
