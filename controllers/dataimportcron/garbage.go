package dataimportcron

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// collectGarbage deletes the imports that are too many, once a newer one is whole: those that were
// what the DataSource named longest ago. The one that it names stays, whatever is asked for.
func (r *Reconciler) collectGarbage(ctx context.Context, s *scope) error {
	if !s.imported() || ptr.Deref(s.cron.Spec.GarbageCollect, cdiv1.DataImportCronGarbageCollectOutdated) == cdiv1.DataImportCronGarbageCollectNever {
		return nil
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.List(ctx, &claims, client.InNamespace(s.cron.Namespace), client.MatchingLabels{LabelCron: s.cron.Name}); err != nil {
		return fmt.Errorf("listing the claims of DataImportCron %s: %w", s.cron.Name, err)
	}
	for _, claim := range superfluous(claims.Items, s.claim.Name, int(ptr.Deref(s.cron.Spec.ImportsToKeep, keptImports))) {
		log.FromContext(ctx).Info("Deleting an old import", "claim", claim.Name, "lastUse", claim.Annotations[AnnotationLastUse])
		if err := r.discard(ctx, &claim); err != nil {
			return err
		}
	}
	return nil
}

// superfluous returns the claims that go when keep stay, current among them.
func superfluous(claims []corev1.PersistentVolumeClaim, current string, keep int) []corev1.PersistentVolumeClaim {
	old := slices.DeleteFunc(slices.Clone(claims), func(c corev1.PersistentVolumeClaim) bool {
		return c.Name == current || c.DeletionTimestamp != nil
	})
	slices.SortFunc(old, func(a, b corev1.PersistentVolumeClaim) int {
		if order := timeOf(b.Annotations[AnnotationLastUse]).Compare(timeOf(a.Annotations[AnnotationLastUse])); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	return old[min(len(old), max(keep-1, 0)):]
}

// discard deletes an import: its DataVolume, with which the claim goes, or the claim where there is none.
func (r *Reconciler) discard(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	var object client.Object = claim
	preconditions := client.Preconditions{UID: &claim.UID}
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "DataVolume" {
		object = &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: owner.Name}}
		preconditions.UID = &owner.UID
	}
	if err := r.Delete(ctx, object, preconditions); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the old import %s: %w", claim.Name, err)
	}
	return nil
}
