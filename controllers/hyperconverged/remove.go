package hyperconverged

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	sspv1beta3 "github.com/slipway-vm/slipway/internal/api/ssp/v1beta3"
	"github.com/slipway-vm/slipway/internal/names"
)

// maxBlockers bounds how many workloads a message names.
const maxBlockers = 5

// using are the kinds whose objects cannot go on, or cannot go away, without the components:
// machines and their disks, and node storage, whose volumes virt-handler unmounts.
var using = []schema.GroupVersionKind{
	virtv1.VirtualMachineGroupVersionKind,
	virtv1.VirtualMachineInstanceGroupVersionKind,
	virtv1.VirtualMachineInstanceReplicaSetGroupVersionKind,
	poolv1.SchemeGroupVersion.WithKind(poolv1.VirtualMachinePoolKind),
	hppv1beta1.GroupVersion.WithKind("HostPathProvisioner"),
}

// remove takes the installation away, once nothing uses it any more. The definitions
// stay, and with them what users stored: disks, templates, instance types.
func (r *Reconciler) remove(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.hco, Finalizer) {
		s.removed = true
		return nil
	}
	blockers, err := workloadsLeft(ctx, r.Reader, using...)
	if err != nil {
		return err
	}
	if s.blockers = blockers; len(blockers) > 0 {
		if err := r.planComponents(ctx, s); err != nil {
			return err
		}
		return r.observe(ctx, s) // they keep running, and the status keeps telling how
	}
	for _, operand := range []struct {
		kind schema.GroupVersionKind
		key  client.ObjectKey
	}{
		{kubeVirtKind, client.ObjectKey{Namespace: r.Options.Namespace, Name: names.KubeVirtName}},
		{cdiKind, client.ObjectKey{Name: names.CDIName}},
		{sspKind, client.ObjectKey{Namespace: r.Options.Namespace, Name: sspv1beta3.Name}},
	} {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(operand.kind)
		object.SetNamespace(operand.key.Namespace)
		object.SetName(operand.key.Name)
		err := r.Client.Delete(ctx, object)
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("deleting %s %s: %w", operand.kind.Kind, operand.key.Name, err)
		}
	}
	r.applied.forget()
	r.pruned = ""
	if err := r.pruneExcept(ctx, prunable, func(client.Object) bool { return false }); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(s.hco, Finalizer)
	if err := r.patchFinalizers(ctx, s.hco); err != nil {
		return err
	}
	s.removed = true
	return nil
}

// workloadsLeft names the objects of some kinds that there are, some of them when there are many.
func workloadsLeft(ctx context.Context, reader client.Reader, kinds ...schema.GroupVersionKind) ([]string, error) {
	var left []string
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := reader.List(ctx, list, client.Limit(maxBlockers))
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s objects: %w", kind.Kind, err)
		}
		for i := range list.Items {
			left = append(left, kind.Kind+" "+strings.TrimPrefix(client.ObjectKeyFromObject(&list.Items[i]).String(), "/"))
		}
		if more := list.GetRemainingItemCount(); more != nil && *more > 0 {
			left = append(left, fmt.Sprintf("and %d more", *more))
		}
	}
	return left, nil
}
