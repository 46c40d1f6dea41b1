package subresource

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/memorydump"
	"github.com/slipway-vm/slipway/internal/names"
)

// kindPVC is a claim's kind as refusals name it.
const kindPVC = "persistentvolumeclaim"

const requestPath = "/status/memoryDumpRequest"

// memoryDump asks virt-controller to have the memory of a VM's guest dumped to a claim.
func (s *Server) memoryDump(w http.ResponseWriter, r *http.Request) error {
	asked := &virtv1.VirtualMachineMemoryDumpRequest{}
	if err := decode(r, asked); err != nil {
		return err
	}
	vm, err := s.virtualMachine(r.Context(), key(r))
	if err != nil {
		return err
	}
	claim, err := dumpClaim(vm, asked.ClaimName)
	if err != nil {
		return err
	}
	vmi, err := s.instance(r.Context(), key(r))
	if err != nil {
		return err
	}
	if !vmi.IsRunning() {
		return conflicting(vmi, vmiNotRunning)
	}
	if err := s.checkDumpClaim(r.Context(), vmi, claim); err != nil {
		return err
	}
	if err := dumpable(vm, claim); err != nil {
		return err
	}
	request := &virtv1.VirtualMachineMemoryDumpRequest{ClaimName: claim, Phase: virtv1.MemoryDumpAssociating}
	return accepted(w, s.requestDump(r.Context(), vm, request))
}

// removeMemoryDump asks virt-controller to let go of the claim with the dump, which stays as it is.
func (s *Server) removeMemoryDump(w http.ResponseWriter, r *http.Request) error {
	vm, err := s.virtualMachine(r.Context(), key(r))
	if err != nil {
		return err
	}
	before := vm.Status.MemoryDumpRequest
	if before == nil {
		return conflict(kindVM, vm.Name, "can't remove memory dump association for vm %s, no association found", vm.Name)
	}
	if before.Remove {
		return conflict(kindVM, vm.Name, "memory dump remove request for pvc [%s] already exists", before.ClaimName)
	}
	request := &virtv1.VirtualMachineMemoryDumpRequest{ClaimName: before.ClaimName, Phase: virtv1.MemoryDumpDissociating, Remove: true}
	return accepted(w, s.requestDump(r.Context(), vm, request))
}

// dumpClaim is the claim that is asked for, or that of the last dump; only one at a time is a VM's.
func dumpClaim(vm *virtv1.VirtualMachine, asked string) (string, error) {
	before := vm.Status.MemoryDumpRequest
	switch {
	case before == nil && asked == "":
		return "", badRequest("Memory dump requires claim name to be set")
	case before == nil || asked == before.ClaimName:
		return asked, nil
	case asked == "":
		return before.ClaimName, nil
	}
	return "", conflict(kindVM, vm.Name, "can't request memory dump for pvc [%s] while pvc [%s] is still associated as the memory dump pvc", asked, before.ClaimName)
}

// checkDumpClaim refuses a claim that cannot take the memory of vmi's guest.
func (s *Server) checkDumpClaim(ctx context.Context, vmi *virtv1.VirtualMachineInstance, name string) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := s.live.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: name}, claim)
	if apierrors.IsNotFound(err) {
		return refuse(apierrors.NewNotFound(virtv1.Resource(kindPVC), name))
	}
	if err != nil {
		return fmt.Errorf("unable to retrieve pvc [%s]: %w", name, err)
	}
	if mode := claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		return conflict(kindPVC, name, "pvc should be filesystem pvc")
	}
	if modes := claim.Spec.AccessModes; len(modes) == 1 && modes[0] == corev1.ReadOnlyMany {
		return conflict(kindPVC, name, "pvc access mode can't be read only")
	}
	size, needs := claim.Spec.Resources.Requests.Storage(), quantity.NewQuantity(memorydump.ClaimSize(vmi, memorydump.DefaultOverhead), quantity.BinarySI)
	if size.Cmp(*needs) < 0 {
		return conflict(kindPVC, name, "pvc size [%s] should be bigger then [%s]", size, needs)
	}
	return nil
}

// dumpable refuses what would meet another dump, or another volume of the VM.
func dumpable(vm *virtv1.VirtualMachine, claim string) error {
	if before := vm.Status.MemoryDumpRequest; before != nil {
		switch before.Phase {
		case virtv1.MemoryDumpCompleted, virtv1.MemoryDumpFailed:
		case virtv1.MemoryDumpDissociating:
			return conflict(kindVM, vm.Name, "can't dump memory for pvc [%s] a remove memory dump request is in progress", claim)
		default:
			return conflict(kindVM, vm.Name, "memory dump request for pvc [%s] already in progress", claim)
		}
	}
	if messages := validation.IsDNS1123Label(claim); len(messages) > 0 {
		return badRequest("a volume is called after pvc [%s], whose name cannot be one: %s", claim, messages[0])
	}
	if vm.Spec.Template == nil {
		return conflict(kindVM, vm.Name, "missing virtual machine template.")
	}
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		if volume.MemoryDump == nil && (volume.Name == claim || claimBehind(volume) == claim) {
			return conflict(kindVM, vm.Name, "can't dump memory to pvc [%s]: volume [%s] of the virtual machine has that name, or is on it; use another pvc", claim, volume.Name)
		}
	}
	return nil
}

// claimBehind is the claim that a disk is on, empty for none.
func claimBehind(volume virtv1.Volume) string {
	switch {
	case volume.DataVolume != nil:
		return volume.DataVolume.Name
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil && volume.Ephemeral.PersistentVolumeClaim != nil:
		return volume.Ephemeral.PersistentVolumeClaim.ClaimName
	}
	return ""
}

// requestDump writes what is asked for, unless somebody else has asked meanwhile.
func (s *Server) requestDump(ctx context.Context, vm *virtv1.VirtualMachine, request *virtv1.VirtualMachineMemoryDumpRequest) error {
	content, err := patch{}.test(requestPath, vm.Status.MemoryDumpRequest).add(requestPath, request).encode()
	if err != nil {
		return err
	}
	options := &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{FieldManager: names.ManagerAPI}}
	return patched(kindVM, vm.Name, s.client.Status().Patch(ctx, vm, client.RawPatch(types.JSONPatchType, content), options))
}
