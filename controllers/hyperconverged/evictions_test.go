package hyperconverged

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

func TestTheStrategyForEvictionsIsPatchedIntoKubeVirt(t *testing.T) {
	for name, c := range map[string]struct{ strategy, wantError string }{
		"a known one":   {"External", ""},
		"an unheard of": {"Sometimes", `spec.configuration.evictionStrategy: Unsupported value: "Sometimes": supported values: "None"`},
	} {
		t.Run(name, func(t *testing.T) {
			hco := &hcov1.HyperConverged{}
			hco.Annotations = map[string]string{
				hcov1.AnnotationKubeVirtPatch: fmt.Sprintf(`[{"op":"add","path":"/spec/configuration/evictionStrategy","value":%q}]`, c.strategy),
			}
			objects, err := operands(hco, testOptions().Values())
			if c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Errorf("got %v, want %s", err, c.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, _, err := unstructured.NestedString(objects[0].Object, "spec", "configuration", "evictionStrategy"); err != nil || got != c.strategy {
				t.Errorf("got %q (%v), want %s", got, err, c.strategy)
			}
		})
	}
}
