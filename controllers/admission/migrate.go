package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/controllers/admission/virtualmachine"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
	"github.com/slipway-vm/slipway/controllers/volumemigration"
)

// completeMachine completes a new VM, and notes on one that is changed which volumes are to be copied: with the change itself, so
// that nobody sees a VM that has the one and not the other.
func (a admitter) completeMachine(ctx context.Context, request admission.Request) admission.Response {
	r, err := decode[virtv1.VirtualMachine](&request)
	if err != nil {
		return undecodable(&request, err)
	}
	var cluster defaults.Cluster
	if r.old == nil {
		kv, err := a.kubevirt(ctx)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		cluster = defaults.Of(&kv.Spec.Configuration)
	}
	var failure error
	changed, err := change(request.Object.Raw, r.object, func(vm *virtv1.VirtualMachine) {
		if r.old == nil {
			virtualmachine.Default(vm, cluster)
		}
		failure = virtualmachine.NoteVolumes(r.old, vm, a.ours(&request))
	})
	if err := errors.Join(err, failure); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, changed)
}

// ours reports whether request is virt-controller's.
func (a admitter) ours(request *admission.Request) bool {
	return request.UserInfo.Username == a.clones.Controller
}

// migration refuses a change of volumes that are to be copied and cannot be. What virt-controller changes is not copied.
func (a admitter) migration(ctx context.Context, r *review[virtv1.VirtualMachine]) (field.ErrorList, error) {
	if a.ours(r.request) {
		return nil, nil
	}
	migrated, errs, err := virtualmachine.ValidateMigration(r.old, r.object, field.NewPath("spec"))
	if err != nil || len(errs) > 0 || len(migrated) == 0 {
		return errs, err
	}
	instances := &virtv1.VirtualMachineInstanceList{}
	if err := a.reader.List(ctx, instances, client.InNamespace(r.request.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the VirtualMachineInstances of %s: %w", r.request.Namespace, err)
	}
	for i := range instances.Items {
		if vmi := &instances.Items[i]; !vmi.IsFinal() {
			errs = append(errs, used(vmi, r.object.Name, migrated)...)
		}
	}
	if len(errs) > 0 {
		return errs, nil
	}
	machines := &virtv1.VirtualMachineList{}
	if err := a.reader.List(ctx, machines, client.InNamespace(r.request.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the VirtualMachines of %s: %w", r.request.Namespace, err)
	}
	for i := range machines.Items {
		if vm := &machines.Items[i]; vm.Name != r.object.Name && vm.Spec.Template != nil {
			errs = append(errs, occupied(vm, migrated)...)
		}
	}
	return errs, nil
}

// occupied refuses claims to copy to that vm, another VM, has: its disk would be written over.
func occupied(vm *virtv1.VirtualMachine, migrated []virtualmachine.Migrated) field.ErrorList {
	var errs field.ErrorList
	for _, one := range migrated {
		for i := range vm.Spec.Template.Spec.Volumes {
			if volumemigration.ClaimOf(&vm.Spec.Template.Spec.Volumes[i]) == one.To {
				errs = append(errs, field.Forbidden(one.Path, fmt.Sprintf("VirtualMachine %s has its disk on %s; take another claim", vm.Name, one.To)))
			}
		}
	}
	return errs
}

// used refuses volumes whose claims vmi, which runs, has. vm is the VM's name.
func used(vmi *virtv1.VirtualMachineInstance, vm string, migrated []virtualmachine.Migrated) field.ErrorList {
	var errs field.ErrorList
	for _, one := range migrated {
		if vmi.Name == vm {
			errs = append(errs, field.Forbidden(one.Path, "the VirtualMachine runs, and volumes are copied only while it does not: stop the VM first, then change the volume"))
			continue
		}
		for i := range vmi.Spec.Volumes {
			if claim := volumemigration.ClaimOf(&vmi.Spec.Volumes[i]); claim != "" && (claim == one.From || claim == one.To) {
				errs = append(errs, field.Forbidden(one.Path, fmt.Sprintf("VirtualMachineInstance %s uses %s; stop it first", vmi.Name, claim)))
			}
		}
	}
	return errs
}
