package subresource

import (
	"context"
	"maps"
	"net/http"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachine"
	"github.com/slipway-vm/slipway/internal/rename"
)

// rename records that a stopped VM is to have another name; virt-controller does it.
func (s *Server) rename(w http.ResponseWriter, r *http.Request) error {
	options, err := readRename(r)
	if err != nil {
		return err
	}
	return accepted(w, judgeAgain(func() error { return s.recordRename(r.Context(), key(r), options) }))
}

// recordRename records it on the VM as it is now, when nothing is against it.
func (s *Server) recordRename(ctx context.Context, key client.ObjectKey, options *rename.Options) error {
	vm, err := s.virtualMachine(ctx, key)
	if err != nil {
		return err
	}
	if rename.Target(vm) == options.NewName {
		return nil // it was asked for before
	}
	if err := leaving(vm); err != nil {
		return err
	}
	vmi, err := s.instanceIfAny(ctx, key)
	if err != nil {
		return err
	}
	if why := virtualmachine.RefuseRename(vm, vmi); why != "" {
		return conflict(kindVM, vm.Name, "%s", why)
	}
	if err := s.nameIsFree(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: options.NewName}); err != nil {
		return err
	}
	return s.patchSpec(ctx, vm, options.DryRun, renamePatch(vm, options.NewName))
}

// readRename reads what a client must send, as far as it can be judged by itself.
func readRename(r *http.Request) (*rename.Options, error) {
	options := &rename.Options{}
	if err := decodeRequired(r, options); err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	switch {
	case options.NewName == "":
		return nil, badRequest("Please provide a new name for the VM")
	case options.OldName != nil && *options.OldName != name:
		return nil, badRequest("oldName is %s, but the request is of VM %s", *options.OldName, name)
	case options.NewName == name:
		return nil, badRequest("The VM's new name cannot be identical to the current name")
	}
	if why := virtualmachine.RefuseTarget(options.NewName, nil, nil); why != "" {
		return nil, badRequest("%s", why)
	}
	return options, checkDryRun(options.DryRun)
}

// nameIsFree refuses a name that a VM or a VMI has.
func (s *Server) nameIsFree(ctx context.Context, key client.ObjectKey) error {
	taken, err := s.virtualMachine(ctx, key)
	if err != nil && statusOf(err).Code != http.StatusNotFound {
		return err
	}
	vmi, err := s.instanceIfAny(ctx, key)
	if err != nil {
		return err
	}
	if why := virtualmachine.RefuseTarget(key.Name, taken, vmi); why != "" {
		return conflict(kindVM, key.Name, "%s", why)
	}
	return nil
}

// renamePatch records the new name on the VM as it was judged.
func renamePatch(vm *virtv1.VirtualMachine, name string) patch {
	annotations := maps.Clone(vm.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, rename.AnnotationFailure)
	annotations[rename.AnnotationTarget] = name
	return patch{}.test("/metadata/resourceVersion", vm.ResourceVersion).add("/metadata/annotations", annotations)
}

// leaving refuses what would be lost with the name of a VM that is being renamed.
func leaving(vm *virtv1.VirtualMachine) error {
	if target := rename.Target(vm); target != "" {
		return conflict(kindVM, vm.Name, "it is being renamed to %s", target)
	}
	return nil
}
