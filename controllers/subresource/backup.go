package subresource

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/backup"
	"github.com/slipway-vm/slipway/internal/names"
)

// requestAnnotation is where a VMI says what backup it is asked for.
var requestAnnotation = "/metadata/annotations/" + strings.ReplaceAll(backup.AnnotationRequest, "/", "~1")

// backup ends the backup of a VMI that goes on. It begins none: those are objects of their own.
func (s *Server) backup(w http.ResponseWriter, r *http.Request) error {
	options := &backupv1.BackupOptions{}
	if err := decode(r, options); err != nil {
		return err
	}
	vmi, err := s.checked(r, running(vmiNotRunning))
	if err != nil {
		return err
	}
	request, err := backup.Requested(vmi)
	if err != nil {
		return conflict(kindVMI, vmi.Name, "%v", err)
	}
	switch options.Cmd {
	case backupv1.Abort:
		if request == nil || options.BackupName != "" && options.BackupName != request.Name {
			return conflict(kindVMI, vmi.Name, "no such backup goes on")
		}
		return accepted(w, s.abortBackup(r.Context(), vmi, request))
	case backupv1.Start:
		if request != nil {
			return conflict(kindVMI, vmi.Name, "backup %s goes on already", request.Name)
		}
		return badRequest("a backup is begun by an object: create a VirtualMachineBackup of the virtual machine")
	case backupv1.Export:
		return badRequest("backups are not served to be pulled yet; create a VirtualMachineBackup with spec.pvcName")
	}
	return badRequest("cmd %q is none: use %s", options.Cmd, backupv1.Abort)
}

// abortBackup asks for the end of what request asks for, unless somebody else has changed that meanwhile.
func (s *Server) abortBackup(ctx context.Context, vmi *virtv1.VirtualMachineInstance, request *backup.Request) error {
	before := vmi.Annotations[backup.AnnotationRequest]
	request.Abort = true
	after, err := request.Encode()
	if err != nil {
		return err
	}
	content, err := patch{}.test(requestAnnotation, before).add(requestAnnotation, after).encode()
	if err != nil {
		return err
	}
	return patched(kindVMI, vmi.Name, s.client.Patch(ctx, vmi, client.RawPatch(types.JSONPatchType, content), client.FieldOwner(names.ManagerAPI)))
}
