// Package eviction knows what becomes of a guest when its launcher pod is to be evicted, as a drain
// of its node has it.
package eviction

import (
	"context"
	"fmt"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Strategy returns what vmi says of it, or else what the KubeVirt object does, which is read from
// reader only then; None where neither says anything.
func Strategy(ctx context.Context, reader client.Reader, vmi *virtv1.VirtualMachineInstance) (virtv1.EvictionStrategy, error) {
	if own := vmi.Spec.EvictionStrategy; own != nil {
		return *own, nil
	}
	list := &virtv1.KubeVirtList{}
	if err := reader.List(ctx, list); err != nil {
		return "", fmt.Errorf("reading the eviction strategy of the KubeVirt object: %w", err)
	}
	return Of(vmi, list.Items), nil
}

// Of is Strategy for who has the KubeVirt objects already.
func Of(vmi *virtv1.VirtualMachineInstance, kubevirts []virtv1.KubeVirt) virtv1.EvictionStrategy {
	if own := vmi.Spec.EvictionStrategy; own != nil {
		return *own
	}
	if len(kubevirts) > 0 && kubevirts[0].Spec.Configuration.EvictionStrategy != nil {
		return *kubevirts[0].Spec.Configuration.EvictionStrategy
	}
	return virtv1.EvictionStrategyNone
}

// Keeps says whether vmi's guest, of that strategy, is not to end with an eviction of its pod.
func Keeps(strategy virtv1.EvictionStrategy, vmi *virtv1.VirtualMachineInstance) bool {
	switch strategy {
	case virtv1.EvictionStrategyLiveMigrate, virtv1.EvictionStrategyExternal:
		return true
	case virtv1.EvictionStrategyLiveMigrateIfPossible:
		return vmi.IsMigratable()
	}
	return false
}
