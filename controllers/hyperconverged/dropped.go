package hyperconverged

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// dropWebhooks takes those webhooks out of a live configuration that object does not have any
// more. An apply would leave of each the certificate that virt-api wrote, and be refused for it.
func (r *Reconciler) dropWebhooks(ctx context.Context, object *unstructured.Unstructured) error {
	if object.GroupVersionKind().Group != "admissionregistration.k8s.io" {
		return nil
	}
	wanted, is, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil || !is {
		return nil //nolint:nilerr // a policy has none
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(object), live); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	all, _, err := unstructured.NestedSlice(live.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("reading its webhooks: %w", err)
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(webhook any) bool {
		return !slices.ContainsFunc(wanted, func(other any) bool { return nameOf(other) == nameOf(webhook) })
	})
	if len(kept) == len(all) {
		return nil
	}
	changed := live.DeepCopy()
	if err := unstructured.SetNestedSlice(changed.Object, kept, "webhooks"); err != nil {
		return fmt.Errorf("dropping webhooks: %w", err)
	}
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerOperator)); err != nil {
		return fmt.Errorf("dropping webhooks that are no more: %w", err)
	}
	return nil
}

// nameOf is the name of a webhook of a configuration.
func nameOf(webhook any) any {
	fields, _ := webhook.(map[string]any)
	return fields["name"]
}
