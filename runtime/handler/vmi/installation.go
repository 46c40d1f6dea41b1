package vmi

import (
	"context"
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configuration is what the KubeVirt object says of all virtual machines; nothing where there is no such object.
func (r *Reconciler) configuration(ctx context.Context) (v1.KubeVirtConfiguration, error) {
	list := &v1.KubeVirtList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return v1.KubeVirtConfiguration{}, fmt.Errorf("reading the KubeVirt object: %w", err)
	}
	if len(list.Items) == 0 {
		return v1.KubeVirtConfiguration{}, nil
	}
	return list.Items[0].Spec.Configuration, nil
}
