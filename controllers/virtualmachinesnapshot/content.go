package virtualmachinesnapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/names"
)

// makeContent writes down what the VM is, and which disks are to be taken.
func (r *Reconciler) makeContent(ctx context.Context, s *scope) error {
	if s.content != nil {
		return nil
	}
	spec, err := r.running(ctx, s)
	if err != nil {
		return err
	}
	claims, err := r.claims(ctx, s.vm)
	if err != nil {
		return err
	}
	state, left, err := r.stateBackup(ctx, s.vm)
	if err != nil {
		return err
	}
	content := newContent(s.snapshot, s.vm, spec, append(claims, state...))
	if left != "" {
		content.Annotations = map[string]string{annotationStateLeft: left}
	}
	err = r.Create(ctx, content, client.FieldOwner(names.ManagerController))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating VirtualMachineSnapshotContent %s: %w", client.ObjectKeyFromObject(content), err)
	}
	if err != nil { // by the pass before, which saw no answer
		if _, err := r.get(ctx, client.ObjectKeyFromObject(content), content); err != nil {
			return err
		}
	}
	s.content = content
	r.normal(s, reasonContent, "Successfully created VirtualMachineSnapshotContent %s", content.Name)
	return nil
}

// running is what the VM runs as: its spec, but for what a running guest has not taken up of that. A VM that is to have another instance
// type or preference is taken as it is defined: its status names the revisions of those, which are nothing to what it started as.
func (r *Reconciler) running(ctx context.Context, s *scope) (*virtv1.VirtualMachineSpec, error) {
	spec := s.vm.Spec.DeepCopy()
	if s.vmi == nil || s.vm.Status.ObservedGeneration == s.vm.Generation || s.vmi.Status.VirtualMachineRevisionName == "" {
		return spec, nil
	}
	revision := &appsv1.ControllerRevision{}
	key := client.ObjectKey{Namespace: s.vm.Namespace, Name: s.vmi.Status.VirtualMachineRevisionName}
	if found, err := r.get(ctx, key, revision); err != nil || !found {
		return spec, err
	}
	var started struct {
		Spec virtv1.VirtualMachineSpec `json:"spec"`
	}
	if err := json.Unmarshal(revision.Data.Raw, &started); err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s: %w", key, err)
	}
	if started.Spec.Template == nil || !sameTypes(&started.Spec, spec) {
		return spec, nil
	}
	// Disks come and go while a guest runs, and are taken as they are.
	started.Spec.Template.Spec.Volumes = spec.Template.Spec.Volumes
	started.Spec.Template.Spec.Domain.Devices.Disks = spec.Template.Spec.Domain.Devices.Disks
	started.Spec.Template.Spec.Domain.Devices.Filesystems = spec.Template.Spec.Domain.Devices.Filesystems // each is of a volume
	started.Spec.DataVolumeTemplates = spec.DataVolumeTemplates
	return &started.Spec, nil
}

// sameTypes reports whether two specs name the same instance type and preference.
func sameTypes(a, b *virtv1.VirtualMachineSpec) bool {
	return equality.Semantic.DeepEqual(a.Instancetype, b.Instancetype) && equality.Semantic.DeepEqual(a.Preference, b.Preference)
}

// backup is a volume of the VM on a claim of which snapshots can be taken.
type backup struct {
	volume string
	claim  *corev1.PersistentVolumeClaim
}

// claims are those of vm's volumes whose storage takes snapshots.
func (r *Reconciler) claims(ctx context.Context, vm *virtv1.VirtualMachine) ([]backup, error) {
	var all []backup
	for _, volume := range vm.Spec.Template.Spec.Volumes {
		name := ClaimOf(&volume)
		if name == "" {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: name}, claim)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fail("PersistentVolumeClaim %s of volume %s is gone", name, volume.Name)
		}
		class, err := r.classOf(ctx, claim.Spec.StorageClassName)
		if err != nil {
			return nil, err
		}
		if class != "" {
			all = append(all, backup{volume: volume.Name, claim: claim})
		}
	}
	return all, nil
}

// newContent makes the content of snapshot: vm as it is defined by spec, and a VolumeSnapshot for each of claims.
func newContent(snapshot *snapshotv1.VirtualMachineSnapshot, vm *virtv1.VirtualMachine, spec *virtv1.VirtualMachineSpec, claims []backup) *snapshotv1.VirtualMachineSnapshotContent {
	content := &snapshotv1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Namespace: snapshot.Namespace, Name: ContentName(snapshot), Finalizers: []string{FinalizerContent}},
		Spec: snapshotv1.VirtualMachineSnapshotContentSpec{
			VirtualMachineSnapshotName: &snapshot.Name,
			Source: snapshotv1.SourceSpec{VirtualMachine: &snapshotv1.VirtualMachine{
				ObjectMeta: simplified(&vm.ObjectMeta), Spec: *spec,
				// What was inferred from disks stays what it was, and as it was.
				Status: virtv1.VirtualMachineStatus{
					InstancetypeRef: instancetype.Moved(vm.Status.InstancetypeRef, vm.Name, ContentName(snapshot)),
					PreferenceRef:   instancetype.Moved(vm.Status.PreferenceRef, vm.Name, ContentName(snapshot)),
				},
			}},
		},
	}
	for _, b := range claims {
		name := fmt.Sprintf("vmsnapshot-%s-volume-%s", snapshot.UID, b.volume)
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, snapshotv1.VolumeBackup{
			VolumeName: b.volume, VolumeSnapshotName: &name,
			PersistentVolumeClaim: snapshotv1.PersistentVolumeClaim{ObjectMeta: simplified(&b.claim.ObjectMeta), Spec: *b.claim.Spec.DeepCopy()},
		})
	}
	return content
}

// simplified is what is kept of an object's metadata.
func simplified(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	annotations := maps.Clone(meta.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, Generation: meta.Generation,
		Labels: maps.Clone(meta.Labels), Annotations: annotations,
	}
}

// removeContent lets the content go, which its VolumeSnapshots go with, unless it is to be kept.
func (r *Reconciler) removeContent(ctx context.Context, s *scope) error {
	if s.content == nil {
		return nil
	}
	policy := s.snapshot.Spec.DeletionPolicy
	keep := policy != nil && *policy == snapshotv1.VirtualMachineSnapshotContentRetain && ContentReady(s.content) && !s.expired()
	if !keep && s.content.DeletionTimestamp == nil {
		err := r.Delete(ctx, s.content, client.Preconditions{UID: &s.content.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting VirtualMachineSnapshotContent %s: %w", client.ObjectKeyFromObject(s.content), err)
		}
		if found, err := r.get(ctx, client.ObjectKeyFromObject(s.content), s.content); err != nil || !found {
			s.content = nil
			return err
		}
	}
	err := r.change(ctx, s.content, func() { controllerutil.RemoveFinalizer(s.content, FinalizerContent) })
	if !keep {
		s.content = nil
	}
	return ifThere(err)
}
