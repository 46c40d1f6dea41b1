package eviction

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/internal/scheme"
)

func TestStrategy(t *testing.T) {
	const none, migrate, external = virtv1.EvictionStrategyNone, virtv1.EvictionStrategyLiveMigrate, virtv1.EvictionStrategyExternal
	for name, c := range map[string]struct {
		own, cluster *virtv1.EvictionStrategy
		want         virtv1.EvictionStrategy
	}{
		"nobody says anything":       {nil, nil, none},
		"the VMI says it":            {new(migrate), nil, migrate},
		"the KubeVirt object says":   {nil, new(external), external},
		"the VMI has the last word":  {new(none), new(migrate), none},
		"the VMI says more than all": {new(external), new(none), external},
	} {
		t.Run(name, func(t *testing.T) {
			kv := &virtv1.KubeVirt{}
			kv.Name, kv.Namespace = "kubevirt", "kubevirt"
			kv.Spec.Configuration.EvictionStrategy = c.cluster
			vmi := &virtv1.VirtualMachineInstance{}
			vmi.Spec.EvictionStrategy = c.own
			reader := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(kv).Build()
			got, err := Strategy(t.Context(), reader, vmi)
			if err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestKeeps(t *testing.T) {
	still, moves := &virtv1.VirtualMachineInstance{}, &virtv1.VirtualMachineInstance{}
	moves.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue}}
	for strategy, want := range map[virtv1.EvictionStrategy][2]bool{
		virtv1.EvictionStrategyNone:                  {false, false},
		virtv1.EvictionStrategyLiveMigrate:           {true, true},
		virtv1.EvictionStrategyLiveMigrateIfPossible: {false, true},
		virtv1.EvictionStrategyExternal:              {true, true},
		"Unheard":                                    {false, false},
	} {
		if got := [2]bool{Keeps(strategy, still), Keeps(strategy, moves)}; got != want {
			t.Errorf("%s keeps a guest that cannot and one that can migrate: %v, want %v", strategy, got, want)
		}
	}
}
