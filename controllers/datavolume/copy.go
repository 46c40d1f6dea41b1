package datavolume

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
)

// A clone that no driver makes is a copy: one importer pod has the source, to read it, and the claim, and copies the disk.
// Both are in the pod's namespace; the copy of a claim of another namespace is made there and brought, as a clone is.
const (
	// AnnotationCopiedFrom on a claim is what its disk is copied from, as clonesource.Source.Mark writes it.
	AnnotationCopiedFrom = names.Domain + "copied-from"
	// AnnotationCloneType on a DataVolume asks for a copy when it is "copy"; on its claim it says that it is one.
	AnnotationCloneType = "cdi.kubevirt.io/cloneType"
	// annotationFallback on a claim says why it is a copy although nobody has asked for that.
	annotationFallback = "cdi.kubevirt.io/cloneFallbackReason"

	volumeSource = "clone-source"
	sourceDir    = "/source"
	sourceDevice = "/dev/cdi-clone-source"
)

// fallback is why a claim is copied although nobody has asked for that, in the field's words: an event's reason and text.
type fallback struct{ reason, message string }

var fallbacks = struct{ snapshots, mode, class, driver fallback }{
	snapshots: fallback{"NoVolumeSnapshotClass", "No compatible volumesnapshotclass found"},
	mode:      fallback{"IncompatibleVolumeModes", "The volume modes of source and target are incompatible"},
	class:     fallback{"IncompatibleProvisioners", "Provisioners are incompatible"},
	driver:    fallback{"NoProvisionerMatch", "The storageclass provisioner does not match the volumesnapshotcontent driver"},
}

// copyNotes are the annotations of a claim that source is copied into.
func copyNotes(source *origin) map[string]string {
	return map[string]string{AnnotationCopiedFrom: source.Mark(), AnnotationCloneType: string(cdiv1.CloneStrategyHostAssisted)}
}

// isCopy reports whether claim, which is one of ours, is filled by a copy.
func isCopy(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[AnnotationCopiedFrom] != ""
}

// copiedWhy reports whether claim is copied from the source and not cloned by a driver; because is nil where that was asked for.
func copiedWhy(in claimInput, claim *corev1.PersistentVolumeClaim) (copied bool, because *fallback) {
	copied, because = bestCopied(in, claim)
	switch {
	case in.Restored: // why the snapshot was is noted
		return true, nil
	case in.Begun == byCopy:
		return true, because
	case in.Begun == byDriver:
		return false, nil
	}
	return copied, because
}

// bestCopied is copiedWhy of a clone that is yet to begin.
func bestCopied(in claimInput, claim *corev1.PersistentVolumeClaim) (copied bool, because *fallback) {
	source := in.Source
	switch {
	case in.DataVolume.Annotations[AnnotationCloneType] == string(cdiv1.CloneStrategyHostAssisted):
		return true, nil
	case source.InSnapshot(): // a driver that clones no claims may well make them of snapshots
		because = noRestore(in, claim)
	case in.Strategy == cdiv1.CloneStrategyHostAssisted && !source.files:
		return true, nil
	default:
		because = noClone(in, claim)
	}
	if because == nil && source.mode != "" && source.mode != volumeMode(claim.Spec) {
		because = &fallbacks.mode
	}
	return because != nil, because
}

// noRestore is why the driver of a snapshot does not make claim of it, nil when it does.
func noRestore(in claimInput, claim *corev1.PersistentVolumeClaim) *fallback {
	driver := in.Source.driver
	if chosen(claim) || driver != "" && in.Class != nil && in.Class.Provisioner != driver {
		return &fallbacks.driver
	}
	return nil
}

// noClone is why no driver makes claim of another, nil when one does. Files are the driver's even where there is no class of snapshots.
func noClone(in claimInput, claim *corev1.PersistentVolumeClaim) *fallback {
	source := in.Source
	a, b := source.class, claim.Spec.StorageClassName
	switch {
	case source.driverless, chosen(claim), a != nil && b != nil && *a != *b:
		return &fallbacks.class
	case in.Strategy == cdiv1.CloneStrategySnapshot && in.SnapshotClass == "" && !source.files:
		return &fallbacks.snapshots
	}
	return nil
}

// chosen reports whether claim gets one of the volumes that there are: then no driver makes one for it.
func chosen(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" || claim.Spec.Selector != nil
}

// copyInto makes claim one that the source is copied into. Where no size is given, it is the source's, and what a file system needs
// beside it. How large a disk in a file is only the pod sees, which refuses one that does not fit.
func copyInto(in claimInput, claim *corev1.PersistentVolumeClaim, because *fallback) error {
	source := in.Source
	if source.files {
		return errors.New("the source holds files, and only disks are copied; name a storage class whose driver clones volumes of the source's")
	}
	setAll(&claim.Annotations, copyNotes(source))
	if because != nil {
		setAll(&claim.Annotations, map[string]string{annotationFallback: because.message})
	}
	have, need := claim.Spec.Resources.Requests.Storage(), source.size
	switch {
	case have.IsZero():
		if volumeMode(claim.Spec) == corev1.PersistentVolumeFilesystem && !source.fits {
			need = inflate(need, cdiconfig.Overhead(&in.Config, in.Class))
		}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: need}
	case source.mode == corev1.PersistentVolumeBlock && have.Cmp(need) < 0:
		return tooSmall(have, &need)
	}
	return nil
}

// otherModes reports whether the class, which is not the source's, has no volumes of the source's mode, but others.
func otherModes(in claimInput) bool {
	if in.Profile == nil || in.Class == nil || in.Source.class == nil || *in.Source.class == in.Class.Name {
		return false
	}
	access := in.DataVolume.Spec.Storage.AccessModes
	same := corev1.PersistentVolumeClaimSpec{AccessModes: access, VolumeMode: new(in.Source.mode)}
	return offered(in.Profile, &same) == nil && offered(in.Profile, &corev1.PersistentVolumeClaimSpec{AccessModes: access}) != nil
}

// copySource is the claim that a pod of its namespace copies into the DataVolume's claim, nil when none does.
func (s *scope) copySource() *clonesource.Source {
	if !s.plan.clones() || s.claim == nil {
		return nil
	}
	from := clonesource.FromMark(s.claim.Annotations[AnnotationCopiedFrom])
	if from == nil || from.InSnapshot() || from.Claim.Namespace != s.claim.Namespace || from.Claim.Name == s.claim.Name {
		return nil
	}
	return from
}

// addCopySource gives the container the claim from, to read it. That of a file system is not mounted read-only for the whole pod,
// for SELinux's labels, unless nobody may mount it otherwise.
func addCopySource(from *corev1.PersistentVolumeClaim, pod *corev1.Pod, container *corev1.Container) {
	block := volumeMode(from.Spec) == corev1.PersistentVolumeBlock
	addVolume(pod, volumeSource, corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: from.Name, ReadOnly: block || readOnly(from)},
	})
	if block {
		container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: volumeSource, DevicePath: sourceDevice})
		container.Args = append(container.Args, "--copy-from="+sourceDevice)
		return
	}
	mount(container, volumeSource, sourceDir, true)
	container.Args = append(container.Args, "--copy-from="+sourceDir)
}

// readOnly reports whether claim can only be read.
func readOnly(claim *corev1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(claim.Spec.AccessModes, func(mode corev1.PersistentVolumeAccessMode) bool { return mode != corev1.ReadOnlyMany })
}
