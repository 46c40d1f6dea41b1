package volumesnapshot

import (
	"context"
	"fmt"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// contentName is the name of the content of a snapshot: the one that it names, or the one that is made for it.
func contentName(snapshot *snapshotv1.VolumeSnapshot) string {
	if isStatic(snapshot) {
		return *snapshot.Spec.Source.VolumeSnapshotContentName
	}
	return "snapcontent-" + string(snapshot.UID)
}

// isStatic says that the snapshot names a content that somebody made by hand.
func isStatic(snapshot *snapshotv1.VolumeSnapshot) bool {
	return snapshot.Spec.Source.VolumeSnapshotContentName != nil
}

func sourceClaim(snapshot *snapshotv1.VolumeSnapshot) string {
	return ptr.Deref(snapshot.Spec.Source.PersistentVolumeClaimName, "")
}

func boundName(snapshot *snapshotv1.VolumeSnapshot) string {
	if snapshot.Status == nil {
		return ""
	}
	return ptr.Deref(snapshot.Status.BoundVolumeSnapshotContentName, "")
}

func isReady(snapshot *snapshotv1.VolumeSnapshot) bool {
	return snapshot.Status != nil && ptr.Deref(snapshot.Status.ReadyToUse, false)
}

// findContent finds the snapshot's content, if it has one.
func (r *Reconciler) findContent(ctx context.Context, s *scope) error {
	name, content := contentName(s.snapshot), &snapshotv1.VolumeSnapshotContent{}
	err := r.Get(ctx, client.ObjectKey{Name: name}, content)
	switch {
	case apierrors.IsNotFound(err) && isStatic(s.snapshot):
		return fail(reasonContentMissing, "VolumeSnapshotContent %s does not exist: create it, with this snapshot in spec.volumeSnapshotRef", name)
	case apierrors.IsNotFound(err) && boundName(s.snapshot) == name:
		return fail(reasonContentMissing, "VolumeSnapshotContent %s is gone, and with it what is known of the data: delete this snapshot", name)
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading VolumeSnapshotContent %s: %w", name, err)
	}
	if (content.Spec.Source.SnapshotHandle != nil) != isStatic(s.snapshot) {
		return fail(reasonContentMismatch, "VolumeSnapshotContent %s was made for another kind of snapshot: "+
			"one that is named in spec.source has a snapshotHandle, one that is made from a claim has a volumeHandle", name)
	}
	if !pointsBack(content, s.snapshot) {
		return fail(reasonContentMisbound, "VolumeSnapshotContent %s is for another VolumeSnapshot, %s/%s: correct its spec.volumeSnapshotRef, or name another content",
			name, content.Spec.VolumeSnapshotRef.Namespace, content.Spec.VolumeSnapshotRef.Name)
	}
	s.content = content
	return nil
}

// pointsBack says that content is for snapshot; one made by hand need not know its uid.
func pointsBack(content *snapshotv1.VolumeSnapshotContent, snapshot *snapshotv1.VolumeSnapshot) bool {
	ref := content.Spec.VolumeSnapshotRef
	return ref.Namespace == snapshot.Namespace && ref.Name == snapshot.Name &&
		(ref.UID == snapshot.UID || ref.UID == "" && isStatic(snapshot))
}

// protect keeps the snapshot until its content may go.
func (r *Reconciler) protect(ctx context.Context, s *scope) error {
	return r.change(ctx, s.snapshot, func() {
		controllerutil.AddFinalizer(s.snapshot, finalizerAsSource)
		controllerutil.AddFinalizer(s.snapshot, finalizerBound)
	})
}

// change patches what edit changes of object, of the version that was read.
func (r *Reconciler) change(ctx context.Context, object client.Object, edit func()) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copying %T %s failed", object, object.GetName())
	}
	edit()
	if equality.Semantic.DeepEqual(before, object) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, object, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("changing %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// makeContent makes the content that the driver takes the snapshot for.
func (r *Reconciler) makeContent(ctx context.Context, s *scope) error {
	if s.content != nil || isStatic(s.snapshot) {
		return nil
	}
	node, err := r.nodeOf(ctx, s.volume)
	if err != nil {
		return err
	}
	content, err := newContent(s, node)
	if err != nil {
		return err
	}
	if err := r.protectClaim(ctx, s.claim); err != nil {
		return err
	}
	if err := apply.Object(ctx, r.Client, content, names.ManagerController); err != nil {
		return err
	}
	r.events.Eventf(s.snapshot, nil, corev1.EventTypeNormal, reasonCreating, "Reconcile",
		"Waiting for a snapshot of claim %s to be created by driver %s", s.claim.Name, content.Spec.Driver)
	s.content = content
	return nil
}

// newContent is the content of a snapshot whose volume is on node, "" when it is not bound to one.
func newContent(s *scope, node string) (*snapshotv1.VolumeSnapshotContent, error) {
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: contentName(s.snapshot), Finalizers: []string{finalizerContent}},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{
				APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: kindSnapshot,
				Namespace: s.snapshot.Namespace, Name: s.snapshot.Name, UID: s.snapshot.UID,
			},
			DeletionPolicy: s.class.DeletionPolicy, Driver: s.class.Driver, VolumeSnapshotClassName: &s.class.Name,
			Source:           snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &s.volume.Spec.CSI.VolumeHandle},
			SourceVolumeMode: new(ptr.Deref(s.volume.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)),
		},
	}
	if node != "" {
		content.Labels = map[string]string{labelManagedBy: node}
	}
	name, namespace := s.class.Parameters[parameterSecretName], s.class.Parameters[parameterSecretNamespace]
	if (name == "") != (namespace == "") {
		return nil, fail(reasonCreationFailed, "VolumeSnapshotClass %s has one of the parameters %s and %s: set both, or none",
			s.class.Name, parameterSecretName, parameterSecretNamespace)
	}
	if name != "" {
		filled := strings.NewReplacer("${volumesnapshotcontent.name}", content.Name,
			"${volumesnapshot.name}", s.snapshot.Name, "${volumesnapshot.namespace}", s.snapshot.Namespace)
		content.Annotations = map[string]string{annotationSecretName: filled.Replace(name), annotationSecretNamespace: filled.Replace(namespace)}
	}
	return content, nil
}

// bindContent makes a content that somebody made by hand this snapshot's alone.
func (r *Reconciler) bindContent(ctx context.Context, s *scope) error {
	if !isStatic(s.snapshot) || s.content.DeletionTimestamp != nil {
		return nil
	}
	fresh := s.content.Spec.VolumeSnapshotRef.UID == ""
	err := r.change(ctx, s.content, func() {
		s.content.Spec.VolumeSnapshotRef.UID = s.snapshot.UID
		if class := s.snapshot.Spec.VolumeSnapshotClassName; class != nil {
			s.content.Spec.VolumeSnapshotClassName = class
		}
		controllerutil.AddFinalizer(s.content, finalizerContent)
	})
	if err == nil && fresh && s.content.Labels[labelManagedBy] == "" && s.content.Status == nil {
		r.events.Eventf(s.snapshot, s.content, corev1.EventTypeNormal, reasonUnclaimed, "Reconcile",
			"Waiting for driver %s to find snapshot handle %s; of a driver with storage on nodes, the node that has it takes VolumeSnapshotContent %s",
			s.content.Spec.Driver, *s.content.Spec.Source.SnapshotHandle, s.content.Name)
	}
	return err
}
