package hyperconverged

import (
	"maps"
	"strings"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

func TestWhetherRolesAreAggregated(t *testing.T) {
	manual, aggregated := new(virtv1.RoleAggregationStrategyManual), new(virtv1.RoleAggregationStrategyAggregateToDefault)
	for name, c := range map[string]struct {
		hco, kubevirt *virtv1.RoleAggregationStrategy
		want          string
	}{
		"nobody says":                 {want: "true"},
		"the KubeVirt object says no": {kubevirt: manual, want: "false"},
		"HyperConverged says no":      {hco: manual, want: "false"},
		"HyperConverged says yes":     {hco: aggregated, kubevirt: manual, want: "true"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{hco: &hcov1.HyperConverged{}, kubevirt: &virtv1.KubeVirt{}}
			s.hco.Spec.Virtualization.RoleAggregationStrategy = c.hco
			s.kubevirt.Spec.Configuration.RoleAggregationStrategy = c.kubevirt
			var err error
			if s.wanted, err = plan(s.hco, infra{}, testOptions().Values()); err != nil {
				t.Fatal(err)
			}
			if err := (&Reconciler{}).aggregateRoles(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, object := range s.wanted {
				for key, value := range object.GetLabels() {
					if role, is := strings.CutPrefix(key, aggregateLabel); is && object.GetKind() == "ClusterRole" {
						got[object.GetName()+" in "+role] = value
					}
				}
			}
			want := map[string]string{
				"kubevirt.io:admin in admin": c.want, "kubevirt.io:edit in edit": c.want, "kubevirt.io:view in view": c.want,
				"cdi.kubevirt.io:admin in admin": "true", "cdi.kubevirt.io:edit in edit": "true", "cdi.kubevirt.io:view in view": "true",
			}
			if !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
