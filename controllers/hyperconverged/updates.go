package hyperconverged

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

// The field's defaults of a strategy.
const (
	defaultBatch    = int64(10)
	defaultInterval = time.Minute
)

// updatesAsked is what hco says of VMs with a former launcher, as the KubeVirt object says it. The
// defaults are written out: the API server makes null of a map of which an apply leaves nothing.
func updatesAsked(hco *hcov1.HyperConverged) map[string]any {
	said := map[string]any{"batchEvictionSize": defaultBatch, "batchEvictionInterval": defaultInterval.String()}
	asked := hco.Spec.Virtualization.WorkloadUpdateStrategy
	if asked == nil {
		return said
	}
	if len(asked.WorkloadUpdateMethods) > 0 {
		methods := make([]any, len(asked.WorkloadUpdateMethods))
		for i, method := range asked.WorkloadUpdateMethods {
			methods[i] = string(method)
		}
		said["workloadUpdateMethods"] = methods
	}
	if asked.BatchEvictionSize != nil {
		said["batchEvictionSize"] = int64(*asked.BatchEvictionSize)
	}
	if asked.BatchEvictionInterval != nil {
		said["batchEvictionInterval"] = asked.BatchEvictionInterval.Duration.String()
	}
	return said
}

// countOutdated counts the VMIs with a former launcher, which are all that the cache has, if any.
func (r *Reconciler) countOutdated(ctx context.Context, s *scope) error {
	if err := r.watch(ctx, virtv1.VirtualMachineInstanceGroupVersionKind); err != nil {
		return err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(virtv1.VirtualMachineInstanceGroupVersionKind)
	reader := client.Reader(r.Client)
	if r.InstancesFiltered {
		reader = r.Reader
	}
	if err := reader.List(ctx, list, client.HasLabels{virtv1.OutdatedLauncherImageLabel}); err != nil {
		return fmt.Errorf("counting the VMIs with a former launcher: %w", err)
	}
	s.outdated = new(len(list.Items))
	return nil
}

// comesAndGoes lets only the beginning and the end of what the cache has through.
func comesAndGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}
