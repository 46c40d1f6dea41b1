package virtualmachineinstance

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waitForRivals says which of the VMI's claims another VMI has in use in a way that bears no
// second one. Two VMIs that start at the same moment may both go on: the node lets one QEMU have
// the disk and the other wait.
func (r *Reconciler) waitForRivals(ctx context.Context, s *scope) ([]lack, error) {
	var missing []lack
	for _, v := range s.volumes {
		list := &virtv1.VirtualMachineInstanceList{}
		if err := r.List(ctx, list, client.InNamespace(s.vmi.Namespace), client.MatchingFields{claimIndex: v.claim}); err != nil {
			return nil, fmt.Errorf("listing the users of claim %s/%s: %w", s.vmi.Namespace, v.claim, err)
		}
		for i := range list.Items {
			other := &list.Items[i]
			if other.UID != s.vmi.UID && holds(other) && excludes(s.vmi, other, v.claim) {
				missing = append(missing, lack{needHelp, ReasonClaimInUse, fmt.Sprintf(
					"PVC %s is in use by VirtualMachineInstance %s; waiting until that ends (disks that are shareable in both, or only read, need not wait)", v.claim, other.Name)})
			}
		}
	}
	return missing, nil
}

// holds says whether vmi has a launcher pod that may use its disks.
func holds(vmi *virtv1.VirtualMachineInstance) bool {
	return !vmi.IsFinal() && (vmi.Status.NodeName != "" || len(vmi.Status.ActivePods) > 0)
}

// excludes says whether one of the two writes to the claim, and one of them bears no other.
func excludes(vmi, other *virtv1.VirtualMachineInstance, claim string) bool {
	a, b := useOf(vmi, claim), useOf(other, claim)
	return a.attached && b.attached && (a.writes || b.writes) && (!a.shares || !b.shares)
}

// use is what a VMI does with a claim.
type use struct{ attached, writes, shares bool }

func useOf(vmi *virtv1.VirtualMachineInstance, claim string) use {
	var found use
	for _, volume := range vmi.Spec.Volumes {
		if name, _ := claimOf(volume); name != claim {
			continue
		}
		source := volume.PersistentVolumeClaim
		for i := range vmi.Spec.Domain.Devices.Disks {
			disk := &vmi.Spec.Domain.Devices.Disks[i]
			if disk.Name != volume.Name {
				continue
			}
			reads := disk.CDRom != nil || disk.Disk != nil && disk.Disk.ReadOnly || source != nil && source.ReadOnly || volume.Ephemeral != nil
			found.attached = true
			found.writes = found.writes || !reads
			found.shares = ptr.Deref(disk.Shareable, false)
		}
		if mounted(vmi, volume.Name) { // guests that mount a claim share it as pods do, but none bears that another has a disk there
			found.attached, found.shares = true, true
			found.writes = found.writes || source == nil || !source.ReadOnly
		}
	}
	return found
}

// mounted says whether the guest of vmi mounts the volume called name.
func mounted(vmi *virtv1.VirtualMachineInstance, name string) bool {
	return slices.ContainsFunc(vmi.Spec.Domain.Devices.Filesystems, func(filesystem virtv1.Filesystem) bool { return filesystem.Name == name })
}

// rivalsOf are the VMIs that may have waited for obj, which ends, to let go of its claims.
func (r *Reconciler) rivalsOf(ctx context.Context, obj client.Object) []reconcile.Request {
	vmi, ok := obj.(*virtv1.VirtualMachineInstance)
	if !ok || vmi.DeletionTimestamp == nil && !vmi.IsFinal() {
		return nil
	}
	var found []reconcile.Request
	for _, volume := range vmi.Spec.Volumes {
		if claim, _ := claimOf(volume); claim != "" {
			found = append(found, r.requests(ctx, (*virtv1.VirtualMachineInstance).IsUnprocessed, client.InNamespace(vmi.Namespace), client.MatchingFields{claimIndex: claim})...)
		}
	}
	return found
}
