package dataimportcron

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
)

// noteUse writes onto the claim or snapshot of a new import when it became what the DataSource names.
func (r *Reconciler) noteUse(ctx context.Context, s *scope) error {
	whole, last := s.whole(), s.cron.Status.LastImportedPVC
	if whole == nil || whole.GetAnnotations()[AnnotationLastUse] != "" && last != nil && last.Name == whole.GetName() {
		return nil
	}
	at := r.now().UTC().Format(time.RFC3339Nano)
	meta := map[string]any{"annotations": map[string]string{AnnotationLastUse: at}, "labels": labels(s.cron)}
	if err := apply.Fields(ctx, r.Client, whole, manager, map[string]any{"metadata": meta}); err != nil {
		return fmt.Errorf("noting that %T %s is the newest image: %w", whole, whole.GetName(), err)
	}
	notes := maps.Clone(whole.GetAnnotations())
	if notes == nil {
		notes = map[string]string{}
	}
	notes[AnnotationLastUse] = at
	whole.SetAnnotations(notes)
	return nil
}

// startImport makes the DataVolume of an image that was not imported yet, one at a time. An
// import that cannot succeed makes way: for another image at once, for the same one at the next poll. One of which
// there is no snapshot makes way for another image.
func (r *Reconciler) startImport(ctx context.Context, s *scope) error {
	again := s.polled && s.dv != nil && s.dv.Status.Phase == cdiv1.Failed
	if !s.outdated() && !again {
		return nil
	}
	if s.current != nil && !s.imported() {
		if goesOn, err := r.makeWay(ctx, s, again); err != nil || !goesOn {
			return err
		}
	}
	dv, err := newDataVolume(s.cron, s.newest)
	if err != nil {
		s.taken = err.Error()
		return nil
	}
	kept, err := r.keptBefore(ctx, s, dv.Name)
	if err != nil {
		return err
	}
	if kept {
		dv = nil
	} else if made, err := r.begin(ctx, s, dv); err != nil || !made {
		return err
	}
	s.current = &cdiv1.ImportStatus{DataVolumeName: nameOfImport(s.cron, s.digest), Digest: s.digest}
	s.dv, s.claim, s.snapshot = dv, nil, nil
	return nil
}

// begin makes dv where the account may have cloned what it clones, and says whether it is there.
func (r *Reconciler) begin(ctx context.Context, s *scope, dv *cdiv1.DataVolume) (bool, error) {
	if s.unauthorized != "" {
		return false, nil // the poll has asked
	}
	if allowed, err := r.authorize(ctx, s); err != nil || !allowed {
		return false, err
	}
	return r.create(ctx, s, dv)
}

// create makes dv, and says whether it is there.
func (r *Reconciler) create(ctx context.Context, s *scope, dv *cdiv1.DataVolume) (bool, error) {
	log.FromContext(ctx).Info("Importing a new image", "DataVolume", dv.Name, "digest", s.digest)
	err := r.Create(ctx, dv, client.FieldOwner(manager))
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.existing(ctx, s, dv.Name)
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		s.taken = fmt.Sprintf("DataVolume %s is refused: %v", dv.Name, err)
		r.events.Eventf(s.cron, nil, corev1.EventTypeWarning, reasonFailed, eventAction, "%s", s.taken)
		s.sooner(lastRetry)
		return false, nil
	case err != nil:
		return false, fmt.Errorf("creating DataVolume %s: %w", dv.Name, err)
	}
	return true, nil
}

// existing says whether the DataVolume of a name is ours, and stays: an image that was imported before is taken as it is.
func (r *Reconciler) existing(ctx context.Context, s *scope, name string) (bool, error) {
	there, err := get(ctx, r.Client, types.NamespacedName{Namespace: s.cron.Namespace, Name: name}, &cdiv1.DataVolume{})
	if err != nil {
		return false, err
	}
	switch {
	case there == nil || there.DeletionTimestamp != nil: // on its way, in or out
		s.sooner(goneRetry)
		return false, nil
	case there.Labels[LabelCron] != s.cron.Name:
		s.taken = fmt.Sprintf("DataVolume %s exists and is not of this DataImportCron; delete or label it", name)
		return false, nil
	}
	s.sooner(goneRetry) // it may be whole already
	return true, nil
}

// fruitless are the reasons of an import that fails again and again: its importer's, and those of a kubelet that cannot
// pull or start the image it runs in.
var fruitless = []string{
	"Error", "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "SignatureValidationFailed",
	"RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
}

// erroneous reports whether an import has failed, or fails again and again.
func erroneous(dv *cdiv1.DataVolume) bool {
	if dv == nil || dv.Status.Phase == cdiv1.Failed {
		return dv != nil
	}
	for _, c := range dv.Status.Conditions {
		if c.Type == cdiv1.DataVolumeRunning {
			return c.Status == corev1.ConditionFalse && slices.Contains(fruitless, c.Reason)
		}
	}
	return false
}

// makeWay gives the current import up that has failed, or of which there is no snapshot, and says whether another one
// may begin in this pass. What a DataSource names, or is being cloned, stays until a newer image is whole.
func (r *Reconciler) makeWay(ctx context.Context, s *scope, failed bool) (bool, error) {
	switch {
	case failed || erroneous(s.dv):
		return false, r.giveUp(ctx, s)
	case s.unkept == "" && s.taken == "":
		return false, nil
	}
	there := s.whatIsThere()
	free, err := r.unneeded(ctx, s, there...)
	if err != nil {
		return false, err
	}
	s.unkept, s.taken = "", ""
	if len(free) < len(there) {
		return true, nil
	}
	return false, r.giveUp(ctx, s)
}

// whatIsThere are the claim and the snapshot of the current import, as far as they are there.
func (s *scope) whatIsThere() []client.Object {
	var there []client.Object
	if s.claim != nil {
		there = append(there, s.claim)
	}
	if s.snapshot != nil {
		there = append(there, s.snapshot)
	}
	return there
}

// naming is what a DataSource names of an import.
type naming struct{ claim, snapshot bool }

// namedNow finds what the DataSource names of the current import. It reads past the cache, for what it does not name goes.
func (r *Reconciler) namedNow(ctx context.Context, s *scope) (naming, error) {
	source, err := get(ctx, r.live, types.NamespacedName{Namespace: s.cron.Namespace, Name: s.cron.Spec.ManagedDataSource}, &cdiv1.DataSource{})
	if err != nil || source == nil {
		return naming{}, err
	}
	from, name := source.Spec.Source, s.current.DataVolumeName
	return naming{claim: from.PVC != nil && from.PVC.Name == name, snapshot: from.Snapshot != nil && from.Snapshot.Name == name}, nil
}

// giveUp deletes what there is of an import that did not succeed, or is not kept; the pass after it is gone begins anew.
func (r *Reconciler) giveUp(ctx context.Context, s *scope) error {
	if s.snapshot != nil && s.snapshot.DeletionTimestamp == nil {
		if err := r.discard(ctx, s.snapshot); err != nil {
			return err
		}
	}
	if s.dv == nil && s.claim != nil && s.claim.DeletionTimestamp == nil { // which has outlived its DataVolume
		if err := r.discard(ctx, s.claim); err != nil {
			return err
		}
	}
	if s.dv != nil && s.dv.DeletionTimestamp == nil {
		log.FromContext(ctx).Info("Giving an import up", "DataVolume", s.dv.Name, "phase", s.dv.Status.Phase)
		if err := r.Delete(ctx, s.dv, client.Preconditions{UID: &s.dv.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting DataVolume %s, whose import failed: %w", s.dv.Name, err)
		}
	}
	s.current, s.dv, s.claim, s.snapshot = nil, nil, nil, nil
	s.sooner(goneRetry)
	return nil
}

// labels are those of what a DataImportCron makes.
func labels(cron *cdiv1.DataImportCron) map[string]string {
	all := map[string]string{LabelCron: cron.Name}
	if goes(cron) {
		all[LabelCleanup] = valueTrue
	}
	return all
}

// goes says whether what a DataImportCron makes goes with it.
func goes(cron *cdiv1.DataImportCron) bool {
	return ptr.Deref(cron.Spec.RetentionPolicy, cdiv1.DataImportCronRetainAll) == cdiv1.DataImportCronRetainNone
}

// owners are those of what a DataImportCron makes: itself, when that goes with it.
func owners(cron *cdiv1.DataImportCron) []metav1.OwnerReference {
	if !goes(cron) {
		return nil
	}
	return []metav1.OwnerReference{{
		APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "DataImportCron", Name: cron.Name, UID: cron.UID,
	}}
}

// nameOfImport is what the DataVolume of an image is named, its claim and its snapshot. The digest is a whole one.
func nameOfImport(cron *cdiv1.DataImportCron, digest string) string {
	return cron.Spec.ManagedDataSource + "-" + digest[len(digestPrefix):][:digestInName]
}

// next is what the import of the image is named that is wanted; empty when there is none.
func (s *scope) next() string {
	if !isWhole(s.digest) {
		return ""
	}
	return nameOfImport(s.cron, s.digest)
}

// isWhole reports whether a digest is one that names can be made of.
func isWhole(digest string) bool {
	return len(digest) >= len(digestPrefix)+digestInName && strings.HasPrefix(digest, digestPrefix)
}

// newDataVolume returns the DataVolume that imports an image.
func newDataVolume(cron *cdiv1.DataImportCron, image newest) (*cdiv1.DataVolume, error) {
	digest := image.digest
	if !isWhole(digest) {
		return nil, fmt.Errorf("annotation %s is %q; it must be %s and hexadecimal digits", AnnotationDesired, digest, digestPrefix)
	}
	template := cron.Spec.Template.DeepCopy()
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cron.Namespace, Name: nameOfImport(cron, digest),
			Labels: clonesource.Defaults(cron.Labels), Annotations: template.Annotations, OwnerReferences: owners(cron),
		},
		Spec: template.Spec,
	}
	maps.Copy(dv.Labels, template.Labels)
	maps.Copy(dv.Labels, map[string]string{names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "storage"})
	maps.Copy(dv.Labels, labels(cron))
	if dv.Annotations == nil {
		dv.Annotations = map[string]string{}
	}
	dv.Annotations[names.AnnotationBind] = valueTrue // nobody consumes a golden image
	if retain := cron.Annotations[annotationRetainPod]; retain != "" {
		dv.Annotations[annotationRetainPod] = retain
	}
	if source := dv.Spec.Source; source != nil && source.Registry != nil {
		url, err := addressOf(source.Registry, image)
		if err != nil {
			return nil, err
		}
		source.Registry.URL, source.Registry.ImageStream = &url, nil
	}
	return dv, nil
}

// addressOf is where an image of a registry lies, by its digest: a tag may stand for another one by then.
func addressOf(from *cdiv1.DataVolumeSourceRegistry, image newest) (string, error) {
	switch {
	case from.ImageStream == nil:
		return withDigest(ptr.Deref(from.URL, ""), image.digest)
	case image.at == "":
		return "", fmt.Errorf("annotation %s names no image; it must be registry/path@%s", AnnotationStreamImage, image.digest)
	}
	return withDigest(schemeDocker+image.at, image.digest)
}
