package virtualmachineexport

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
)

// findVolumes finds what is to be exported.
func (r *Reconciler) findVolumes(ctx context.Context, s *scope) error {
	switch kind := s.export.Spec.Source.Kind; kind {
	case KindClaim:
		return r.findClaim(ctx, s)
	case KindMachine:
		return r.findMachine(ctx, s)
	case KindSnapshot:
		return r.findSnapshot(ctx, s)
	default:
		s.lack = &lack{reason: reasonUnknown, message: fmt.Sprintf("spec.source.kind %q cannot be exported", kind), empty: true}
		return nil
	}
}

// findClaim finds the one claim.
func (r *Reconciler) findClaim(ctx context.Context, s *scope) error {
	name := s.export.Spec.Source.Name
	claim := &corev1.PersistentVolumeClaim{}
	found, err := r.get(ctx, s.key(name), claim)
	switch {
	case err != nil:
		return err
	case !found:
		s.lack = &lack{reason: reasonClaimNotFound, message: fmt.Sprintf("PersistentVolumeClaim %s not found", s.key(name))}
		return nil
	}
	s.volumes = []Volume{volumeOf(claim, false)}
	if !populated(claim) {
		s.lack = &lack{reason: reasonClaimPending, message: fmt.Sprintf("PersistentVolumeClaim %s is not populated", s.key(name))}
	}
	return nil
}

// findMachine finds the claims of a VM, which must not run.
func (r *Reconciler) findMachine(ctx context.Context, s *scope) error {
	s.machine = s.export.Spec.Source.Name
	key := s.key(s.machine)
	vm := &virtv1.VirtualMachine{}
	found, err := r.get(ctx, key, vm)
	switch {
	case err != nil:
		return err
	case !found:
		s.lack = &lack{reason: reasonMachineNotFound, message: fmt.Sprintf("Virtual Machine %s not found", key)}
		return nil
	}
	s.vm = vm
	missing, err := r.readClaims(ctx, s, vm)
	if err != nil {
		return err
	}
	vmi := &virtv1.VirtualMachineInstance{}
	running, err := r.get(ctx, key, vmi)
	switch {
	case err != nil:
		return err
	case running && !vmi.IsFinal():
		s.lack = &lack{reason: reasonInUse, message: fmt.Sprintf("Virtual Machine %s is running", key)}
	case vm.Status.RestoreInProgress != nil:
		s.lack = &lack{reason: reasonInUse, message: fmt.Sprintf("VirtualMachineRestore %s of Virtual Machine %s is in progress", *vm.Status.RestoreInProgress, key)}
	case len(missing) > 0:
		s.lack = &lack{reason: reasonNotPopulated, message: fmt.Sprintf("Not all volumes in the Virtual Machine %s are populated: %s", key, strings.Join(missing, ", "))}
	case len(s.volumes) == 0:
		s.lack = &lack{reason: reasonMachineEmpty, message: fmt.Sprintf("Virtual Machine %s has no volumes", key), empty: true}
	}
	return nil
}

// readClaims reads the claims of vm's volumes, and those with what else it keeps; missing are the names of
// those that hold nothing yet.
func (r *Reconciler) readClaims(ctx context.Context, s *scope, vm *virtv1.VirtualMachine) (missing []string, err error) {
	if vm.Spec.Template == nil {
		return nil, nil
	}
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		name := virtualmachinesnapshot.ClaimOf(&volume)
		if name == "" || s.has(name) {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		found, err := r.get(ctx, s.key(name), claim)
		switch {
		case err != nil:
			return nil, err
		case !found:
			missing = append(missing, name)
			continue
		case !populated(claim):
			missing = append(missing, name)
		}
		s.volumes = append(s.volumes, volumeOf(claim, volume.MemoryDump == nil))
	}
	return missing, r.readState(ctx, s, vm)
}

// readState reads the claims with what vm keeps beside its disks. One that goes, or is of a former VM of the name, is not among them.
func (r *Reconciler) readState(ctx context.Context, s *scope, vm *virtv1.VirtualMachine) error {
	states := &corev1.PersistentVolumeClaimList{}
	label := client.MatchingLabels(pod.StateLabels(&virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: vm.Name}}))
	if err := r.live.List(ctx, states, client.InNamespace(vm.Namespace), label); err != nil {
		return fmt.Errorf("looking for the state of VirtualMachine %s: %w", client.ObjectKeyFromObject(vm), err)
	}
	for i := range states.Items {
		claim := &states.Items[i]
		if pod.HoldsState(claim, vm.UID) && !s.has(claim.Name) {
			s.volumes = append(s.volumes, volumeOf(claim, false))
		}
	}
	return nil
}

// has says whether claim is exported already: a VM may name it twice.
func (s *scope) has(claim string) bool {
	return slices.ContainsFunc(s.volumes, func(v Volume) bool { return v.Claim == claim })
}

// volumeOf is the volume that a claim is. What a claim of files holds that nobody has described is a disk when a VM has it as one.
func volumeOf(claim *corev1.PersistentVolumeClaim, asDisk bool) Volume {
	v := Volume{
		Name: claim.Name, Claim: claim.Name, Bound: claim.Status.Phase == corev1.ClaimBound,
		Block: ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock, was: &claim.Spec,
	}
	v.Disk = v.Block || holdsDisk(claim.Annotations, asDisk)
	return v
}

// holdsDisk says whether a claim with a file system holds a disk, by what its annotations say.
func holdsDisk(annotations map[string]string, asDisk bool) bool {
	if annotations[virtv1.PVCMemoryDumpAnnotation] != "" {
		return false
	}
	switch cdiv1.DataVolumeContentType(annotations[datavolume.AnnotationContentType]) {
	case cdiv1.DataVolumeKubeVirt:
		return true
	case cdiv1.DataVolumeArchive:
		return false
	}
	return asDisk
}

// populated says whether claim holds what it is to hold.
func populated(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil || population.Awaited(claim) {
		return false
	}
	by := metav1.GetControllerOf(claim)
	return by == nil || by.Kind != "DataVolume" || claim.Annotations[datavolume.AnnotationPodPhase] == string(corev1.PodSucceeded)
}

// checkUsers looks whether pods have the volumes that could write to them.
func (r *Reconciler) checkUsers(ctx context.Context, s *scope) error {
	if s.lack != nil || len(s.volumes) == 0 {
		return nil
	}
	pods := &corev1.PodList{}
	if err := r.live.List(ctx, pods, client.InNamespace(s.export.Namespace)); err != nil {
		return fmt.Errorf("listing the pods of %s: %w", s.export.Namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || isExporter(pod) {
			continue
		}
		for _, claim := range claimsOf(pod) {
			if s.has(claim) {
				s.lack = &lack{reason: reasonInUse, message: fmt.Sprintf("PersistentVolumeClaim %s is in use by pod %s", s.key(claim), pod.Name)}
				return nil
			}
		}
	}
	return nil
}

// claimsOf are the claims of pod.
func claimsOf(pod *corev1.Pod) []string {
	var claims []string
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			claims = append(claims, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return claims
}

// isExporter says whether pod is an export server's, which only reads.
func isExporter(pod *corev1.Pod) bool { return pod.Labels[names.LabelPod] == podKind }
