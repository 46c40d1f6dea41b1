package hyperconverged

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/eviction"
)

// checkEviction refuses a strategy for evictions of virtual machines that there is not.
func checkEviction(kubevirt *unstructured.Unstructured) error {
	strategy, found, err := unstructured.NestedString(kubevirt.Object, "spec", "configuration", "evictionStrategy")
	if err != nil {
		return fmt.Errorf("evictionStrategy: %w", err)
	}
	if found && !slices.Contains(eviction.Known(), virtv1.EvictionStrategy(strategy)) {
		return fmt.Errorf("evictionStrategy: %q is not known; use one of %v", strategy, eviction.Known())
	}
	return nil
}
