package dataimportcron

import (
	"context"
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/population"
)

const (
	kindClaim    = "PersistentVolumeClaim"
	kindSnapshot = "VolumeSnapshot"
)

// users are those who may need an image.
type users struct {
	sources []cdiv1.DataSource
	volumes []cdiv1.DataVolume
	// Those in the namespace of the images.
	claims    []corev1.PersistentVolumeClaim
	snapshots []snapshotv1.VolumeSnapshot
	pods      []corev1.Pod
}

// unneeded returns those of images that nobody needs, claims and snapshots of a namespace, and looks again later when
// there are others. That nobody needs one it makes sure of past the cache, which may lag behind, and has not all pods.
func (r *Reconciler) unneeded(ctx context.Context, s *scope, images ...client.Object) ([]client.Object, error) {
	free := slices.Clone(images)
	for _, read := range []func(context.Context, string) (*users, error){r.knownUsers, r.allUsers} {
		if len(free) == 0 {
			break
		}
		found, err := read(ctx, s.cron.Namespace)
		if err != nil {
			return nil, err
		}
		free = slices.DeleteFunc(free, func(image client.Object) bool {
			by := found.of(image)
			if by != "" {
				log.FromContext(ctx).V(1).Info("Leaving an image that is needed", "image", image.GetName(), "type", fmt.Sprintf("%T", image), "by", by)
			}
			return by != ""
		})
	}
	if len(free) < len(images) {
		s.sooner(neededRetry)
	}
	return free, nil
}

// knownUsers are those in the cache.
func (r *Reconciler) knownUsers(ctx context.Context, _ string) (*users, error) {
	return namers(ctx, r.Client)
}

// allUsers are all of the images of a namespace.
func (r *Reconciler) allUsers(ctx context.Context, namespace string) (*users, error) {
	found, err := namers(ctx, r.live)
	if err != nil {
		return nil, err
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.live.List(ctx, &claims, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("looking for clones of images: %w", err)
	}
	var snapshots snapshotv1.VolumeSnapshotList
	if err := r.live.List(ctx, &snapshots, client.InNamespace(namespace)); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("looking for snapshots of images: %w", err)
	}
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("looking for pods that use images: %w", err)
	}
	found.claims, found.snapshots, found.pods = claims.Items, snapshots.Items, pods.Items
	return found, nil
}

// namers are the DataSources and DataVolumes of all namespaces.
func namers(ctx context.Context, c client.Reader) (*users, error) {
	var sources cdiv1.DataSourceList
	if err := c.List(ctx, &sources); err != nil {
		return nil, fmt.Errorf("looking for DataSources that name images: %w", err)
	}
	var volumes cdiv1.DataVolumeList
	if err := c.List(ctx, &volumes); err != nil {
		return nil, fmt.Errorf("looking for DataVolumes that clone images: %w", err)
	}
	return &users{sources: sources.Items, volumes: volumes.Items}, nil
}

// of names somebody who needs an image, empty when nobody does.
func (u *users) of(image client.Object) string {
	for i := range u.sources {
		if o := &u.sources[i]; is(image, named(o)) {
			return "DataSource " + client.ObjectKeyFromObject(o).String()
		}
	}
	for i := range u.volumes {
		if o := &u.volumes[i]; is(image, cloned(o)) {
			return "DataVolume " + client.ObjectKeyFromObject(o).String()
		}
	}
	for i := range u.claims {
		if o := &u.claims[i]; waitsFor(o, image) || isCopied(o, image) {
			return "claim " + o.Name
		}
	}
	if _, isClaim := image.(*corev1.PersistentVolumeClaim); !isClaim {
		return ""
	}
	for i := range u.snapshots {
		if o := &u.snapshots[i]; isTakenOf(o, image.GetName()) {
			return "VolumeSnapshot " + o.Name
		}
	}
	for i := range u.pods {
		if o := &u.pods[i]; uses(o, image.GetName()) {
			return "pod " + o.Name
		}
	}
	return ""
}

// is says whether from is an image.
func is(image client.Object, from *clonesource.Source) bool {
	_, isSnapshot := image.(*snapshotv1.VolumeSnapshot)
	return from != nil && from.InSnapshot() == isSnapshot && from.Key() == client.ObjectKeyFromObject(image)
}

// named is what a DataSource names itself, nil when that is another DataSource or nothing.
func named(source *cdiv1.DataSource) *clonesource.Source {
	from := source.Spec.Source
	return clonesource.Named(source.Namespace, &cdiv1.DataVolumeSource{PVC: from.PVC, Snapshot: from.Snapshot})
}

// cloned is what a DataVolume is yet to clone: what it names, or what its creator may clone by a DataSource; nil when that is not
// known, or it clones nothing any more.
func cloned(dv *cdiv1.DataVolume) *clonesource.Source {
	if dv.DeletionTimestamp != nil || dv.Status.Phase == cdiv1.Succeeded || dv.Status.Phase == cdiv1.Failed {
		return nil
	}
	if leave := clonesource.FromMark(dv.Annotations[clonesource.AnnotationAuthorized]); leave != nil {
		return leave
	}
	return clonesource.Named(dv.Namespace, dv.Spec.Source)
}

// waitsFor reports whether a claim is to be made from an image of its namespace, and is not yet.
func waitsFor(claim *corev1.PersistentVolumeClaim, image client.Object) bool {
	kind := kindClaim
	if _, isSnapshot := image.(*snapshotv1.VolumeSnapshot); isSnapshot {
		kind = kindSnapshot
	}
	return population.Awaits(claim, kind, image.GetName())
}

// isCopied reports whether an image is being copied into a claim.
func isCopied(claim *corev1.PersistentVolumeClaim, image client.Object) bool {
	phase := claim.Annotations[datavolume.AnnotationPodPhase]
	ended := claim.DeletionTimestamp != nil || phase == "Succeeded" || phase == "Failed"
	return !ended && is(image, clonesource.FromMark(claim.Annotations[datavolume.AnnotationCopiedFrom]))
}

// isTakenOf reports whether a snapshot is being taken of a claim of its namespace, by others than a DataImportCron.
func isTakenOf(snapshot *snapshotv1.VolumeSnapshot, claim string) bool {
	return snapshot.Labels[LabelCron] == "" && snapshot.DeletionTimestamp == nil && !ready(snapshot) &&
		ptr.Deref(snapshot.Spec.Source.PersistentVolumeClaimName, "") == claim
}

// uses reports whether a pod that has not ended uses a claim of its namespace.
func uses(pod *corev1.Pod, claim string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}
