package imageupload

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	shared "github.com/slipway-vm/slipway/internal/upload"
)

// Annotations of claims, in the field's words: how their filling ended, and what is in them.
const (
	annotationPhase   = "cdi.kubevirt.io/storage.pod.phase"
	annotationContent = "cdi.kubevirt.io/storage.contentType"
)

// unmarkWithin is how long it may take to make a claim no target any more, after all else was given up.
const unmarkWithin = 10 * time.Second

// nothingWrong is told of what is waited for when nothing says why.
const nothingWrong = "nothing is wrong"

// claim is a PersistentVolumeClaim that is sent to, without a DataVolume.
type claim struct {
	*upload
	now *corev1.PersistentVolumeClaim
	// before is how it was before it was made a target; nil when it was one, or was made.
	before *corev1.PersistentVolumeClaim
}

func (c *claim) title() string { return "PVC " + c.name }

func (c *claim) prepare(ctx context.Context) error {
	c.now = &corev1.PersistentVolumeClaim{}
	err := c.client.Get(ctx, c.key(), c.now)
	switch {
	case apierrors.IsNotFound(err) && c.noCreate:
		return fmt.Errorf("PVC %s/%s does not exist: leave out --no-create and give its --size", c.namespace, c.name)
	case apierrors.IsNotFound(err):
		return c.create(ctx)
	case err != nil:
		return fmt.Errorf("reading PVC %s: %w", c.name, err)
	}
	if err := c.suits(); err != nil {
		return err
	}
	if err := c.mark(ctx); err != nil {
		return err
	}
	c.say("Using existing PVC %s/%s", c.namespace, c.name)
	err = c.bindNow(ctx, c.now)
	if err == nil {
		err = c.createDataSource(ctx)
	}
	if err != nil {
		return c.giveUp(ctx, false, err)
	}
	return nil
}

// suits errs when nothing can be sent to the claim as it is.
func (c *claim) suits() error {
	by, content := metav1.GetControllerOf(c.now), cdiv1.DataVolumeContentType(c.now.Annotations[annotationContent])
	switch {
	case c.now.Annotations[annotationPhase] == string(corev1.PodSucceeded):
		return fmt.Errorf(hasDisk, c.name)
	case c.archive != "" && ptr.Deref(c.now.Spec.VolumeMode, "") == corev1.PersistentVolumeBlock:
		return fmt.Errorf("PVC %s not available for upload: its volumeMode is Block, which has no files; send an image, or the archive to a claim with a file system", c.name)
	case population.Source(c.now) == cdiv1.VolumeUploadSourceRef:
		return nil // which says what it takes
	case c.now.Spec.DataSource != nil || c.now.Spec.DataSourceRef != nil:
		return fmt.Errorf("PVC %s not available for upload: its dataSource fills it; send the %s to a claim without one", c.name, c.noun())
	case c.marked():
	case by != nil && by.Kind == "DataVolume":
		return fmt.Errorf("PVC %s not available for upload: DataVolume %s fills it; send the %s to another", c.name, by.Name, c.noun())
	case !c.noCreate:
		return fmt.Errorf("PVC %s not available for upload: give --no-create to write over what it holds", c.name)
	default:
		return nil // and so it takes whatever is sent
	}
	return c.takes(content)
}

// takes errs when a claim that takes uploads is for files and an image is sent, or the other way round.
func (c *claim) takes(content cdiv1.DataVolumeContentType) error {
	switch {
	case c.archive != "" && content != cdiv1.DataVolumeArchive:
		return fmt.Errorf(takesImage, c.title())
	case c.archive == "" && content == cdiv1.DataVolumeArchive:
		return fmt.Errorf(takesFiles, c.title())
	}
	return nil
}

// marked says whether the claim is a target of uploads by its annotation.
func (c *claim) marked() bool {
	_, is := c.now.Annotations[shared.AnnotationTarget]
	return is
}

// mark makes a claim that is there a target of uploads, unless a pod uses it: what that has written would be lost.
func (c *claim) mark(ctx context.Context) error {
	if c.marked() || population.Source(c.now) == cdiv1.VolumeUploadSourceRef {
		return nil
	}
	pods := &corev1.PodList{} // who may not list them is told by the claim
	if err := c.client.List(ctx, pods, client.InNamespace(c.namespace)); err == nil {
		if user := population.Consumer(pods.Items, c.now, ""); user != "" {
			return fmt.Errorf("PVC %s not available for upload: pod %s uses it; stop that first", c.name, user)
		}
	}
	before := c.now.DeepCopy()
	if c.now.Annotations == nil {
		c.now.Annotations = map[string]string{}
	}
	c.now.Annotations[shared.AnnotationTarget], c.now.Annotations[annotationContent] = "", string(c.content())
	if err := c.client.Patch(ctx, c.now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("making PVC %s a target of uploads: %w", c.name, err)
	}
	c.before = before
	return nil
}

func (c *claim) giveUp(ctx context.Context, sent bool, why error) error {
	if c.before == nil {
		return why
	}
	if !sent && c.unmark(ctx) == nil {
		return why
	}
	return fmt.Errorf("%w; PVC %s stays a target of uploads, and no VM starts with it: send the %s again, or run kubectl annotate pvc -n %s %s %s-",
		why, c.name, c.noun(), c.namespace, c.name, shared.AnnotationTarget)
}

// unmark makes the claim what it was before mark, even when ctx is over.
func (c *claim) unmark(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unmarkWithin)
	defer cancel()
	notes := map[string]any{shared.AnnotationTarget: nil, annotationContent: nil}
	if content, had := c.before.Annotations[annotationContent]; had {
		notes[annotationContent] = content
	}
	if _, had := c.before.Annotations[names.AnnotationBind]; c.forceBind && !had {
		notes[names.AnnotationBind] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": c.before.UID, "annotations": notes}})
	if err != nil {
		return fmt.Errorf("making PVC %s no target of uploads: %w", c.name, err)
	}
	if err := c.client.Patch(ctx, c.before.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("making PVC %s no target of uploads: %w", c.name, err)
	}
	return nil
}

func (c *claim) create(ctx context.Context) error {
	var err error
	if c.now, err = c.build(); err != nil {
		return err
	}
	if err := c.client.Create(ctx, c.now); err != nil {
		return fmt.Errorf("creating PVC %s: %w", c.name, err)
	}
	c.say("PersistentVolumeClaim %s/%s created", c.namespace, c.name)
	return c.createDataSource(ctx)
}

// build returns the claim that the flags describe.
func (c *claim) build() (*corev1.PersistentVolumeClaim, error) {
	w, err := c.wants()
	if err != nil {
		return nil, err
	}
	if len(w.access) == 0 {
		w.access = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace, Name: c.name, Labels: c.defaults.labels(),
			Annotations: map[string]string{shared.AnnotationTarget: "", annotationContent: string(c.content())},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: w.class, AccessModes: w.access, VolumeMode: w.mode,
			Resources: corev1.VolumeResourceRequirements{Requests: w.requests},
		},
	}
	if c.forceBind {
		made.Annotations[names.AnnotationBind] = "true"
	}
	return made, nil
}

func (c *claim) reached(ctx context.Context, goal goal) (bool, error) {
	notes := c.now.Annotations
	switch phase := corev1.PodPhase(notes[annotationPhase]); {
	case phase == corev1.PodSucceeded && goal == whole, goal == ready && notes[shared.AnnotationReady] == "true":
		return true, nil
	case phase == corev1.PodSucceeded:
		return false, fmt.Errorf(hasDisk, c.name)
	case phase == corev1.PodFailed && (population.Chosen(c.now) || population.Source(c.now) == ""): // else it is an earlier attempt's
		return false, fmt.Errorf("PVC %s has failed: %s", c.name, c.said())
	case goal == ready && !c.forceBind && c.waitsForConsumer(ctx): // with it the state may be one of before
		return false, fmt.Errorf(unbound, "PVC", cdiv1.WaitForFirstConsumer)
	case ctx.Err() != nil:
		what := map[bool]string{true: "takes no " + c.noun() + " yet", false: "is not filled yet"}[goal == ready]
		return false, fmt.Errorf("PVC %s %s: %s; raise --wait-secs or look at it with kubectl describe pvc %s", c.name, what, c.said(), c.name)
	}
	return false, nil
}

// waitsForConsumer says whether the storage binds the claim where a pod uses it, and none does: the DataVolume knows
// that fills the claim, whosever it is.
func (c *claim) waitsForConsumer(ctx context.Context) bool {
	key := client.ObjectKey{Namespace: c.namespace, Name: population.PrimeName(c.now)}
	if by := metav1.GetControllerOf(c.now); by != nil && by.Kind == "DataVolume" {
		key.Name = by.Name
	}
	dv := &cdiv1.DataVolume{}
	return c.client.Get(ctx, key, dv) == nil && waits(dv.Status.Phase)
}

func (c *claim) next(ctx context.Context) (err error) {
	c.now, err = next(ctx, c.upload, c.now, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{})
	return err
}

func (c *claim) filled(ctx context.Context) bool {
	now := &corev1.PersistentVolumeClaim{}
	return c.client.Get(ctx, c.key(), now) == nil && now.Annotations[annotationPhase] == string(corev1.PodSucceeded)
}

// said is what the claim says of what it waits for, or why it has failed.
func (c *claim) said() string {
	if message := c.now.Annotations[population.AnnotationMessage]; message != "" {
		return message
	}
	return nothingWrong
}
