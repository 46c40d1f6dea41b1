package virtualmachineinstance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/backup"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
)

// attachVolumes gives every volume that a running VMI got since its launcher pod was made
// an attachment pod, and takes the pod away once virt-handler says that the guest has let
// go of the disk: a claim is held for as long as QEMU may have it open.
func (r *Reconciler) attachVolumes(ctx context.Context, s *scope) error {
	if s.vmi.Status.Phase != virtv1.Running || s.pod == nil || endOf(s.pod) != nil || s.pod.Spec.NodeName == "" {
		return nil
	}
	wanted := lateVolumes(s.vmi, s.pod)
	held := map[string]bool{}
	for _, p := range s.attachments {
		_, isWanted := wanted[volumeOf(p)]
		isWanted = isWanted && pod.Mounts(p, volumeOf(p), claimNamed(s.vmi, volumeOf(p)))
		if attachmentDone(s.vmi, p, isWanted) {
			if err := r.deletePod(ctx, s, p, 0); err != nil {
				return err
			}
			continue
		}
		if isWanted && p.Labels[names.LabelPod] == pod.KindAttachment {
			held[volumeOf(p)] = true
		}
	}
	var errs []error
	for _, volume := range volumesOf(s.vmi) {
		if late, ok := wanted[volume.Name]; ok && !held[volume.Name] {
			errs = append(errs, r.attach(ctx, s, late))
		}
	}
	return errors.Join(errs...)
}

// lateVolumes are the pluggable volumes of vmi that its launcher pod does not have.
func lateVolumes(vmi *virtv1.VirtualMachineInstance, launcher *corev1.Pod) map[string]virtv1.Volume {
	late := map[string]virtv1.Volume{}
	for _, volume := range volumesOf(vmi) {
		claim, _ := lateClaimOf(volume)
		if claim != "" && !pod.Mounts(launcher, volume.Name, claim) {
			late[volume.Name] = volume
		}
	}
	return late
}

// volumesOf are vmi's volumes, and the one that a backup of it is to be written to, which is not in its spec.
func volumesOf(vmi *virtv1.VirtualMachineInstance) []virtv1.Volume {
	target, found := backup.Target(vmi)
	if !found {
		return vmi.Spec.Volumes
	}
	return append(slices.Clone(vmi.Spec.Volumes), target)
}

func claimNamed(vmi *virtv1.VirtualMachineInstance, name string) string {
	for _, volume := range volumesOf(vmi) {
		if volume.Name == name {
			claim, _ := lateClaimOf(volume)
			return claim
		}
	}
	return ""
}

// volumeOf is the VMI's volume that an attachment pod is for.
func volumeOf(p *corev1.Pod) string { return p.Annotations[names.AnnotationVolume] }

// attachmentDone says whether an attachment pod has done its work: it ended, the guest has
// let go of its disk, or it is wanted no more and no node has it.
func attachmentDone(vmi *virtv1.VirtualMachineInstance, p *corev1.Pod, wanted bool) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return true
	}
	if p.Labels[names.LabelPod] == pod.KindAttachmentTrigger {
		return !wanted && idle(p)
	}
	for _, status := range vmi.Status.VolumeStatus {
		if status.HotplugVolume != nil && status.HotplugVolume.AttachPodUID == p.UID {
			return status.Phase == virtv1.HotplugVolumeUnMounted
		}
	}
	return !wanted && p.Spec.NodeName == ""
}

// attach makes the attachment pod of a volume whose claim is there and filled. Until then
// virt-handler says in the volume's status what is missing.
func (r *Reconciler) attach(ctx context.Context, s *scope, volume virtv1.Volume) error {
	claim, fromDataVolume := lateClaimOf(volume)
	state := volumeState{name: volume.Name, claim: claim, fromDataVolume: fromDataVolume}
	if source := volume.PersistentVolumeClaim; source != nil {
		state.readOnly = source.ReadOnly
	}
	if err := (volumeReader{r.Client}).readVolume(ctx, s.vmi.Namespace, &state); err != nil {
		return err
	}
	missing := judge(state)
	if state.pvc == nil || missing.need != needNothing && missing.need != needConsumer {
		return nil // an event of the claim or its DataVolume brings the next pass
	}
	in, err := r.podInput(ctx, s)
	if err != nil {
		return err
	}
	kind, build := pod.KindAttachment, pod.Attachment
	if missing.need == needConsumer {
		kind, build = pod.KindAttachmentTrigger, pod.AttachmentTrigger
	}
	p := build(in, s.pod.Spec.NodeName, volume.Name, claims([]volumeState{state})[volume.Name])
	existing, err := r.liveAttachment(ctx, s.vmi, kind, volume.Name)
	if err != nil || existing {
		return err
	}
	err = r.Create(ctx, p, client.FieldOwner(names.ManagerController))
	if namespace.Ending(err) {
		return nil
	}
	if err != nil {
		r.warning(s.vmi, nil, reasonCreateFailed, "Error creating hotplug attachment pod: %v", err)
		return fmt.Errorf("creating the attachment pod of volume %s of %s/%s: %w", volume.Name, s.vmi.Namespace, s.vmi.Name, err)
	}
	if kind == pod.KindAttachment {
		r.normal(s.vmi, p, reasonCreate, "Created attachment pod %s", p.Name)
	}
	return nil
}

// liveAttachment says whether the API server has a pod of the kind for the volume, which
// the cache may not show yet. One that is on its way out does not count.
func (r *Reconciler) liveAttachment(ctx context.Context, vmi *virtv1.VirtualMachineInstance, kind, volume string) (bool, error) {
	list := &corev1.PodList{}
	if err := r.live.List(ctx, list, client.InNamespace(vmi.Namespace), client.MatchingLabels{names.LabelPod: kind}); err != nil {
		return false, fmt.Errorf("listing the attachment pods of %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; metav1.IsControlledBy(p, vmi) && volumeOf(p) == volume && p.DeletionTimestamp == nil {
			return true, nil
		}
	}
	return false, nil
}

// readAttachments finds the VMI's attachment pods.
func (r *Reconciler) readAttachments(ctx context.Context, reader client.Reader, vmi *virtv1.VirtualMachineInstance) ([]*corev1.Pod, error) {
	var found []*corev1.Pod
	for _, kind := range []string{pod.KindAttachment, pod.KindAttachmentTrigger} {
		list := &corev1.PodList{}
		if err := reader.List(ctx, list, client.InNamespace(vmi.Namespace), client.MatchingLabels{names.LabelPod: kind}); err != nil {
			return nil, fmt.Errorf("listing the attachment pods of %s/%s: %w", vmi.Namespace, vmi.Name, err)
		}
		for i := range list.Items {
			if metav1.IsControlledBy(&list.Items[i], vmi) {
				found = append(found, &list.Items[i])
			}
		}
	}
	return found, nil
}

// releaseVolumes deletes all attachment pods of a VMI whose launcher pod is gone, and
// nothing has their claims open any more.
func (r *Reconciler) releaseVolumes(ctx context.Context, s *scope, reader client.Reader) error {
	attachments, err := r.readAttachments(ctx, reader, s.vmi)
	if err != nil {
		return err
	}
	for _, p := range attachments {
		if err := r.deletePod(ctx, s, p, 0); err != nil {
			return err
		}
	}
	return nil
}

// waitsForVolume says whether a change of a claim may matter to vmi: it has not started, or
// a volume that it got since is not ready.
func waitsForVolume(vmi *virtv1.VirtualMachineInstance) bool {
	if vmi.IsUnprocessed() {
		return true
	}
	ready := map[string]bool{}
	for _, status := range vmi.Status.VolumeStatus {
		ready[status.Name] = status.HotplugVolume == nil && status.Phase == "" || status.Phase == virtv1.VolumeReady ||
			status.Phase == virtv1.HotplugVolumeMounted || dumps(status)
	}
	for _, volume := range volumesOf(vmi) {
		if claim, _ := lateClaimOf(volume); claim != "" && !ready[volume.Name] {
			return true
		}
	}
	return false
}

// dumps says whether the guest's memory is being dumped to a volume with status, or was.
func dumps(status virtv1.VolumeStatus) bool {
	return status.MemoryDumpVolume != nil && status.MemoryDumpVolume.StartTimestamp != nil
}
