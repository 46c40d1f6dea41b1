package virtualmachine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hotplug"
	"github.com/slipway-vm/slipway/internal/names"
)

// status.memoryDumpRequest says which claim the guest's memory is dumped to, and how far that
// is. virt-api asks there for a dump, or for its end; all else in it is written here, where a
// newer request makes the write fail. The guest's node does the dump itself, for the
// volume that the instance is given.

// Why a dump failed, where the node does not say it.
const (
	dumpEndedVM = "the virtual machine stopped before its memory was dumped"
	dumpRemoved = "the volume was taken from the running virtual machine before its memory was dumped"
)

// annotationDumpFailed is the field's value of the claim's annotation after a dump that failed.
const annotationDumpFailed = "Memory dump failed"

// dumpMemory brings a request of the VM's status one step further, as far as what is known of
// the instance allows. Each step is seen in the next pass, which its own write brings.
func (r *Reconciler) dumpMemory(ctx context.Context, s *scope) error {
	request := s.vm.Status.MemoryDumpRequest
	if request == nil || s.vm.Spec.Template == nil {
		return nil
	}
	switch request.Phase {
	case virtv1.MemoryDumpAssociating:
		return r.associateDump(ctx, s)
	case virtv1.MemoryDumpInProgress:
		return r.followDump(ctx, s)
	case virtv1.MemoryDumpUnmounting:
		if left, err := r.dropDump(ctx, s); err != nil || left {
			return err
		}
		return r.setDump(ctx, s, func(request *virtv1.VirtualMachineMemoryDumpRequest) { request.Phase = virtv1.MemoryDumpCompleted })
	case virtv1.MemoryDumpFailed:
		_, err := r.dropDump(ctx, s)
		return err
	case virtv1.MemoryDumpDissociating:
		return r.dissociateDump(ctx, s)
	}
	return nil
}

// associateDump gives the VM's template the volume, and the instance, where one of an earlier dump
// that is on its way out goes first.
func (r *Reconciler) associateDump(ctx context.Context, s *scope) error {
	claim := s.vm.Status.MemoryDumpRequest.ClaimName
	if ended, err := r.ended(ctx, s); err != nil || ended {
		return r.failDump(ctx, s, err, dumpEndedVM)
	}
	if s.vmi.Status.Phase != virtv1.Running {
		return nil
	}
	if status := dumpStatus(s.vmi, claim); status != nil && dumpEnded(status) {
		_, err := r.dropDump(ctx, s)
		return err
	}
	if !hotplug.HasDump(&s.vm.Spec.Template.Spec, claim) {
		return r.changeTemplate(ctx, s, hotplug.AddDump)
	}
	if !hotplug.HasDump(&s.vmi.Spec, claim) {
		if err := r.changeInstance(ctx, s, hotplug.AddDump); err != nil {
			return err
		}
	}
	return r.setDump(ctx, s, func(request *virtv1.VirtualMachineMemoryDumpRequest) { request.Phase = virtv1.MemoryDumpInProgress })
}

// followDump takes over what the node says of the dump.
func (r *Reconciler) followDump(ctx context.Context, s *scope) error {
	claim := s.vm.Status.MemoryDumpRequest.ClaimName
	if ended, err := r.ended(ctx, s); err != nil || ended {
		return r.failDump(ctx, s, err, dumpEndedVM)
	}
	if !hotplug.HasDump(&s.vmi.Spec, claim) { // the cache may not show yet what the last pass wrote
		if err := r.readInstance(ctx, s); err != nil {
			return err
		}
		if s.vmi == nil || !hotplug.HasDump(&s.vmi.Spec, claim) {
			return r.failDump(ctx, s, nil, dumpRemoved)
		}
	}
	status := dumpStatus(s.vmi, claim)
	switch {
	case status == nil || status.MemoryDumpVolume == nil:
		return nil
	case status.Phase == virtv1.MemoryDumpVolumeFailed:
		return r.failDump(ctx, s, nil, status.Message)
	}
	info := status.MemoryDumpVolume
	if status.Phase == virtv1.MemoryDumpVolumeCompleted {
		if err := r.annotateClaim(ctx, s, info.TargetFileName); err != nil {
			return err
		}
	}
	return r.setDump(ctx, s, func(request *virtv1.VirtualMachineMemoryDumpRequest) {
		request.StartTimestamp = info.StartTimestamp
		if status.Phase == virtv1.MemoryDumpVolumeCompleted {
			request.Phase, request.EndTimestamp, request.FileName = virtv1.MemoryDumpUnmounting, info.EndTimestamp, &info.TargetFileName
		}
	})
}

// dissociateDump takes the volume from instance and template, and then the request from the status.
func (r *Reconciler) dissociateDump(ctx context.Context, s *scope) error {
	if left, err := r.dropDump(ctx, s); err != nil || left {
		return err
	}
	if hotplug.HasDump(&s.vm.Spec.Template.Spec, s.vm.Status.MemoryDumpRequest.ClaimName) {
		return r.changeTemplate(ctx, s, hotplug.RemoveDump)
	}
	return r.writeDump(ctx, s, nil)
}

// dropDump takes the volume from the instance; left says that the node has not let go of the claim.
func (r *Reconciler) dropDump(ctx context.Context, s *scope) (left bool, err error) {
	claim := s.vm.Status.MemoryDumpRequest.ClaimName
	if s.vmi == nil || s.vmi.IsFinal() {
		return false, nil
	}
	if s.vmi.DeletionTimestamp == nil && hotplug.HasDump(&s.vmi.Spec, claim) {
		return true, r.changeInstance(ctx, s, hotplug.RemoveDump)
	}
	return dumpStatus(s.vmi, claim) != nil, nil
}

// ended says whether the VM has no instance that runs, or will. A cache may be behind who
// asked for the dump.
func (r *Reconciler) ended(ctx context.Context, s *scope) (bool, error) {
	if s.vmi == nil {
		if err := r.readInstance(ctx, s); err != nil {
			return false, err
		}
	}
	return s.vmi == nil || s.vmi.IsFinal() || s.vmi.DeletionTimestamp != nil, nil
}

// dumpStatus is what the node says of the volume, nil for nothing.
func dumpStatus(vmi *virtv1.VirtualMachineInstance, volume string) *virtv1.VolumeStatus {
	for i := range vmi.Status.VolumeStatus {
		if vmi.Status.VolumeStatus[i].Name == volume {
			return &vmi.Status.VolumeStatus[i]
		}
	}
	return nil
}

// dumpEnded says whether status is of a dump before this one.
func dumpEnded(status *virtv1.VolumeStatus) bool {
	switch status.Phase {
	case virtv1.MemoryDumpVolumeCompleted, virtv1.MemoryDumpVolumeFailed, virtv1.HotplugVolumeUnMounted:
		return true
	}
	return false
}

// failDump ends a request because of why, unless err stands in the way.
func (r *Reconciler) failDump(ctx context.Context, s *scope, err error, why string) error {
	if err != nil {
		return err
	}
	if err := r.annotateClaim(ctx, s, annotationDumpFailed); err != nil {
		return err
	}
	var status *virtv1.VolumeStatus
	if s.vmi != nil {
		status = dumpStatus(s.vmi, s.vm.Status.MemoryDumpRequest.ClaimName)
	}
	return r.setDump(ctx, s, func(request *virtv1.VirtualMachineMemoryDumpRequest) {
		request.Phase, request.Message = virtv1.MemoryDumpFailed, why
		if status != nil && status.MemoryDumpVolume != nil {
			request.StartTimestamp, request.EndTimestamp = status.MemoryDumpVolume.StartTimestamp, status.MemoryDumpVolume.EndTimestamp
		}
	})
}

// annotateClaim notes on the claim which dump is on it, as in the field.
func (r *Reconciler) annotateClaim(ctx context.Context, s *scope, value string) error {
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: s.vm.Namespace, Name: s.vm.Status.MemoryDumpRequest.ClaimName}
	err := r.Get(ctx, key, claim)
	if err == nil && claim.Annotations[virtv1.PVCMemoryDumpAnnotation] != value {
		changed := claim.DeepCopy()
		if changed.Annotations == nil {
			changed.Annotations = map[string]string{}
		}
		changed.Annotations[virtv1.PVCMemoryDumpAnnotation] = value
		err = r.Patch(ctx, changed, client.MergeFrom(claim), client.FieldOwner(names.ManagerController))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("noting the memory dump on PersistentVolumeClaim %s: %w", key, err)
	}
	return nil
}

// changeTemplate changes what the VM's template says of the volume of the request's claim.
func (r *Reconciler) changeTemplate(ctx context.Context, s *scope, change func(*virtv1.VirtualMachineInstanceSpec, string)) error {
	changed := s.vm.DeepCopy()
	change(&changed.Spec.Template.Spec, s.vm.Status.MemoryDumpRequest.ClaimName)
	return r.patch(ctx, changed, s.vm)
}

// changeInstance does so of the running instance.
func (r *Reconciler) changeInstance(ctx context.Context, s *scope, change func(*virtv1.VirtualMachineInstanceSpec, string)) error {
	changed := s.vmi.DeepCopy()
	change(&changed.Spec, s.vm.Status.MemoryDumpRequest.ClaimName)
	patch := client.MergeFromWithOptions(s.vmi, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return changeError(s, err)
	}
	s.vmi = changed
	return nil
}

// setDump changes the request, and writes it when that makes a difference.
func (r *Reconciler) setDump(ctx context.Context, s *scope, change func(*virtv1.VirtualMachineMemoryDumpRequest)) error {
	request := s.vm.Status.MemoryDumpRequest.DeepCopy()
	change(request)
	if equality.Semantic.DeepEqual(request, s.vm.Status.MemoryDumpRequest) {
		return nil
	}
	return r.writeDump(ctx, s, request)
}

// writeDump writes the request. It has two writers: who has read an older one fails, and reads again.
func (r *Reconciler) writeDump(ctx context.Context, s *scope, request *virtv1.VirtualMachineMemoryDumpRequest) error {
	changed := s.vm.DeepCopy()
	changed.Status.MemoryDumpRequest = request
	patch := client.MergeFromWithOptions(s.vm, client.MergeFromWithOptimisticLock{})
	err := r.Status().Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the memory dump request of VirtualMachine %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
	}
	if err == nil {
		s.vm = changed
	}
	return nil
}
