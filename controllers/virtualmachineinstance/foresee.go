package virtualmachineinstance

import (
	"context"

	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lack is what a volume lacks before a guest could start with it, with a reason and a sentence for the user.
type Lack struct {
	// Help says that nothing happens until somebody changes something; Start that the volume is filled, or bound, by a start alone.
	Help, Start     bool
	Reason, Message string
}

// Foresee says what volumes lack, in the words of an instance that would be started with them in namespace. made are
// DataVolumes that the caller has just made, which reader may not show yet.
func Foresee(ctx context.Context, reader client.Reader, namespace string, volumes []virtv1.Volume, made map[string]*cdiv1.DataVolume) ([]Lack, error) {
	states, err := volumeReader{reader}.readVolumes(ctx, namespace, volumes)
	if err != nil {
		return nil, err
	}
	for i := range states {
		if states[i].dataVolume == nil {
			states[i].dataVolume = made[states[i].claim]
		}
	}
	found := lacks(states)
	told := make([]Lack, 0, len(found))
	for _, l := range found {
		told = append(told, Lack{Help: l.need == needHelp, Start: l.need == needConsumer, Reason: l.reason, Message: l.message})
	}
	return told, nil
}

// ClaimOf is the name of the claim that volume is on; "" where it is on none.
func ClaimOf(volume virtv1.Volume) string {
	claim, _ := claimOf(volume)
	return claim
}
