package vmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/volume"
)

// Reasons of the status of volumes for dumps of the guest's memory, in the field's words.
const (
	reasonDumpMounted = "VolumeMountedToPod"
	reasonDumpFailed  = "MemoryDumpError"
)

// dumpMemory has the launcher write the guest's memory to each volume that is for it, once. The
// file is called after the attachment pod, so that nothing has to be remembered: whoever wants
// another dump takes the volume away and adds it again.
func (r *Reconciler) dumpMemory(ctx context.Context, s *scope) error {
	if !s.pluggable {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	claims := volume.DumpClaims(s.vmi)
	var errs []error
	for i := range s.vmi.Spec.Volumes {
		name := s.vmi.Spec.Volumes[i].Name
		if claims[name] == "" || dumpOver(s.before.volume(name)) || isBlock(s.claims[name]) {
			continue
		}
		a := attachmentOf(s, name, claims[name])
		if a == nil || !a.holds() || dumpTo(s, name, a) != nil || slices.ContainsFunc(s.view.State.Dumps, goesOn) {
			continue // one dump at a time; its end brings the next pass
		}
		errs = append(errs, s.note(name, dump(ctx, s, name, a)))
		s.view = s.session.View()
	}
	return errors.Join(errs...)
}

func dump(ctx context.Context, s *scope, name string, a *attachment) error {
	folder, err := a.session.Volume()
	if err != nil {
		return err
	}
	defer folder.Close()
	what := protocol.MemoryDump{Volume: name, File: dumpFile(s.vmi, name, a)}
	log.FromContext(ctx).Info("Dumping the guest's memory", "volume", name, "file", what.File, "attachmentPod", a.pod.Name)
	err = s.session.DumpMemory(ctx, what, folder)
	if errors.Is(err, session.ErrOldLauncher) {
		s.dumpRefused = name
	}
	return err
}

// dumpFile is the name of the file of a dump to what a holds, in the field's form.
func dumpFile(vmi *v1.VirtualMachineInstance, name string, a *attachment) string {
	return fmt.Sprintf("%s-%s-%s.memory.dump", vmi.Name, name, a.pod.CreationTimestamp.UTC().Format("20060102-150405"))
}

// dumpOf is what the launcher told of the last dump to the volume; nil for none.
func dumpOf(s *scope, name string) *protocol.Dump {
	dumps := s.view.State.Dumps
	if i := slices.IndexFunc(dumps, func(dump protocol.Dump) bool { return dump.Volume == name }); i >= 0 {
		return &dumps[i]
	}
	return nil
}

// dumpTo is the dump to what a holds, as far as it has begun.
func dumpTo(s *scope, name string, a *attachment) *protocol.Dump {
	if dump := dumpOf(s, name); dump != nil && dump.File == dumpFile(s.vmi, name, a) {
		return dump
	}
	return nil
}

func dumpGoesOn(s *scope, name string) bool {
	dump := dumpOf(s, name)
	return dump != nil && goesOn(*dump)
}

func goesOn(dump protocol.Dump) bool { return dump.Ended == nil }

// dumpOver says whether status is that of a dump that has ended, well or not.
func dumpOver(status *v1.VolumeStatus) bool {
	return status != nil && (status.Phase == v1.MemoryDumpVolumeCompleted || status.Phase == v1.MemoryDumpVolumeFailed)
}

func isBlock(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// dumpStatuses is what is said of volumes for dumps: those of the VMI, and those that it has no
// more, for as long as the guest's memory is still being written to them.
func dumpStatuses(s *scope) []v1.VolumeStatus {
	claims := volume.DumpClaims(s.vmi)
	var all []v1.VolumeStatus
	for i := range s.vmi.Spec.Volumes {
		if name := s.vmi.Spec.Volumes[i].Name; claims[name] != "" {
			all = append(all, dumpStatus(s, name, claims[name]))
		}
	}
	for _, a := range s.attachments {
		if name := volume.Held(a.pod); claims[name] == "" && dumpGoesOn(s, name) {
			all = append(all, dumpStatus(s, name, a.claim))
		}
	}
	return all
}

// dumpStatus is that of one volume. What was said at the end of a dump is said until the volume goes.
func dumpStatus(s *scope, name, claimName string) v1.VolumeStatus {
	if old := s.before.volume(name); dumpOver(old) {
		return *old
	}
	claim := s.claims[name]
	status := v1.VolumeStatus{
		Name: name, PersistentVolumeClaimInfo: claimInfo(claimName, claim), MemoryDumpVolume: &v1.DomainMemoryDumpInfo{ClaimName: claimName},
	}
	a := attachmentOf(s, name, claimName)
	if a != nil {
		status.HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: a.pod.Name, AttachPodUID: a.pod.UID}
	}
	switch {
	case dumpGoesOn(s, name):
		describeDump(&status, dumpOf(s, name))
	case isBlock(claim):
		failDump(&status, "PVC %s has the volume mode Block; a memory dump is a file, use a PVC of the mode Filesystem", claimName)
	case a != nil && s.dumpRefused == name:
		failDump(&status, "%v", session.ErrOldLauncher)
	case a != nil && dumpTo(s, name, a) != nil:
		describeDump(&status, dumpTo(s, name, a))
	case a != nil && a.holds():
		status.Phase, status.Reason = v1.HotplugVolumeAttachedToNode, reasonAttachPod
		status.Message = fmt.Sprintf("volume %s is on the node; the dump of the guest's memory begins", name)
	case a != nil:
		status.Phase, status.Reason = v1.VolumeBound, reasonAttachPod
		status.Message = fmt.Sprintf("attachment pod %s is being started", a.pod.Name)
	default:
		status.Phase, status.Reason, status.Message = unattached(claimName, claim)
	}
	if message := s.plugErrors[name]; message != "" && !dumpOver(&status) {
		status.Reason, status.Message = reasonDumpFailed, message
	}
	return status
}

// describeDump says how a dump that has begun goes on, in the field's words.
func describeDump(status *v1.VolumeStatus, dump *protocol.Dump) {
	info := status.MemoryDumpVolume
	began := metav1.NewTime(dump.Began).Rfc3339Copy()
	info.StartTimestamp, info.TargetFileName = &began, dump.File
	if dump.Ended == nil {
		status.Phase, status.Reason = v1.MemoryDumpVolumeInProgress, reasonDumpMounted
		status.Message = fmt.Sprintf("Memory dump Volume %s is attached, getting memory dump", status.Name)
		return
	}
	if dump.Error != "" {
		failDump(status, "%s", dump.Error)
	} else {
		status.Phase, status.Reason = v1.MemoryDumpVolumeCompleted, reasonVolumeReady
		status.Message = fmt.Sprintf("Memory dump to Volume %s has completed successfully", status.Name)
	}
	ended := metav1.NewTime(*dump.Ended).Rfc3339Copy()
	info.EndTimestamp = &ended
}

// failDump says why there is no dump. It ends now, unless the caller knows better.
func failDump(status *v1.VolumeStatus, format string, args ...any) {
	now := metav1.NewTime(time.Now()).Rfc3339Copy()
	status.MemoryDumpVolume.EndTimestamp = &now
	status.Phase, status.Reason = v1.MemoryDumpVolumeFailed, reasonDumpFailed
	status.Message = fmt.Sprintf("Memory dump to pvc %s failed: %s", status.Name, fmt.Sprintf(format, args...))
}
