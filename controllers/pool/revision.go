package pool

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/controllerrevision"
	"github.com/slipway-vm/slipway/internal/names"
)

// revise finds the revision of the pool's template, or writes it down: a ControllerRevision
// with the pool's spec, which VMs and instances are labelled with.
func (r *Reconciler) revise(ctx context.Context, s *scope) error {
	if s.revision != "" {
		return nil
	}
	list := &appsv1.ControllerRevisionList{}
	if err := r.live.List(ctx, list, client.InNamespace(s.pool.Namespace)); err != nil {
		return fmt.Errorf("listing the ControllerRevisions of %s: %w", s.pool.Namespace, err)
	}
	var old []*appsv1.ControllerRevision
	for i := range list.Items {
		revision := &list.Items[i]
		switch {
		case !metav1.IsControlledBy(revision, s.pool):
		case revision.Annotations[annotationTemplate] == s.plan.digest || revision.Revision == s.pool.Generation:
			s.revision = revision.Name
		default:
			old = append(old, revision)
		}
	}
	if s.revision != "" {
		return nil
	}
	if err := r.writeRevision(ctx, s); err != nil {
		return err
	}
	return r.forget(ctx, s, old)
}

func (r *Reconciler) writeRevision(ctx context.Context, s *scope) error {
	data, err := controllerrevision.Data(&s.pool.Spec)
	if err != nil {
		return fmt.Errorf("encoding the spec of VirtualMachinePool %s/%s: %w", s.pool.Namespace, s.pool.Name, err)
	}
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name:            s.pool.Name + "-" + strconv.FormatInt(s.pool.Generation, 10),
			Namespace:       s.pool.Namespace,
			Annotations:     map[string]string{annotationTemplate: s.plan.digest},
			OwnerReferences: []metav1.OwnerReference{ownedBy(s.pool)},
		},
		Data:     data,
		Revision: s.pool.Generation,
	}
	err = r.Create(ctx, revision, client.FieldOwner(names.ManagerController))
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ControllerRevision %s/%s exists and is not this pool's; delete it", revision.Namespace, revision.Name)
	}
	if err != nil {
		return fmt.Errorf("creating ControllerRevision %s/%s: %w", revision.Namespace, revision.Name, err)
	}
	s.revision = revision.Name
	return nil
}

// forget deletes those of old that no VM and no instance has any more.
func (r *Reconciler) forget(ctx context.Context, s *scope, old []*appsv1.ControllerRevision) error {
	used := map[string]bool{}
	for _, vm := range s.members {
		used[vm.Labels[virtv1.VirtualMachinePoolRevisionName]] = true
	}
	for i := range s.instances {
		used[s.instances[i].Labels[virtv1.VirtualMachinePoolRevisionName]] = true
	}
	var errs []error
	for _, revision := range old {
		if used[revision.Name] {
			continue
		}
		if err := r.Delete(ctx, revision); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting ControllerRevision %s/%s: %w", revision.Namespace, revision.Name, err))
		}
	}
	return errors.Join(errs...)
}
