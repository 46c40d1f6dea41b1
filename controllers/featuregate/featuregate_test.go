package featuregate_test

import (
	"testing"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/featuregate"
)

func TestAGateIsOffUntilItIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		developer *virtv1.DeveloperConfiguration
		want      bool
	}{
		"nothing is said":        {},
		"another gate":           {developer: &virtv1.DeveloperConfiguration{FeatureGates: []string{"Sidecar"}}},
		"the gate":               {developer: &virtv1.DeveloperConfiguration{FeatureGates: []string{"Sidecar", "HostDisk"}}, want: true},
		"the gate is also taken": {developer: &virtv1.DeveloperConfiguration{FeatureGates: []string{"HostDisk"}, DisabledFeatureGates: []string{"HostDisk"}}},
	} {
		t.Run(name, func(t *testing.T) {
			kv := &virtv1.KubeVirt{}
			kv.Spec.Configuration.DeveloperConfiguration = c.developer
			if got := featuregate.On(kv, featuregate.HostDisk); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
