package imageupload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"kubevirt.io/api/instancetype"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// goal is what is waited for.
type goal int

const (
	ready goal = iota // an image is taken
	whole             // it was written
)

// target is what is sent to: a DataVolume or a claim. Its state is what prepare and next have read.
type target interface {
	// title is what users call it.
	title() string
	// prepare finds it, or makes it when it may, and errs when nothing can be sent to it.
	prepare(ctx context.Context) error
	// reached says whether it is as far as goal, and errs when it never will be, or when ctx is over.
	reached(ctx context.Context, goal goal) (bool, error)
	// next waits for another state; when ctx is over it keeps the last one.
	next(ctx context.Context) error
	// filled says whether it has its disk by now.
	filled(ctx context.Context) bool
	// giveUp makes it what it was before prepare, unless something was sent. It returns why it is given up, with what of
	// that is left to the user.
	giveUp(ctx context.Context, sent bool, why error) error
}

// What a user may have to know of a file of another kind than the target takes.
const (
	takesFiles = "%s takes an archive: give --archive-path"
	takesImage = "%s doesn't have archive contentType: give --image-path, or send the archive to another"
	hasDisk    = "PVC %s already successfully imported/cloned/updated"
	needsSize  = "when creating a resource, the size must be specified: give --size"
	unbound    = "cannot upload to %s in %s state, make sure the PVC is Bound, or use force-bind flag"
)

// await returns once the target is as far as goal, and errs when it will not be, or not in time.
func (u *upload) await(ctx context.Context, goal goal, bound time.Duration) error {
	ctx, cancel := within(ctx, bound)
	defer cancel()
	told := false
	for {
		done, err := u.target.reached(ctx, goal)
		if done || err != nil {
			return err
		}
		if !told && goal == ready {
			u.say("Waiting for PVC %s upload pod to be ready...", u.name)
			told = true
		}
		if err := u.target.next(ctx); err != nil {
			return err
		}
	}
}

// next waits for the state of the target that follows now, as list has it. When the time is over, it returns now; when
// the watch ends, it reads it anew into empty; an API server that is away is asked again until then.
func next[T client.Object](ctx context.Context, u *upload, now, empty T, list client.ObjectList) (T, error) {
	changes, err := u.client.Watch(ctx, list, &client.ListOptions{
		Namespace: u.namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, u.name),
		Raw: &metav1.ListOptions{ResourceVersion: now.GetResourceVersion()},
	})
	switch {
	case ctx.Err() != nil:
		return now, nil
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		now.SetResourceVersion("") // the next time it begins with how it is by then
		return now, nil
	case unanswered(err):
		pause(ctx)
		return now, nil
	case err != nil:
		return now, fmt.Errorf("following %s: %w", u.target.title(), err)
	}
	defer changes.Stop()
	select {
	case <-ctx.Done():
		return now, nil
	case change, ok := <-changes.ResultChan():
		state, its := change.Object.(T)
		switch {
		case ok && change.Type == watch.Deleted:
			return now, fmt.Errorf("%s was deleted", u.target.title())
		case ok && its:
			return state, nil
		}
	}
	err = u.client.Get(ctx, u.key(), empty)
	switch {
	case ctx.Err() != nil:
		return now, nil
	case unanswered(err):
		pause(ctx)
		return now, nil
	case err != nil:
		return now, fmt.Errorf("reading %s: %w", u.target.title(), err)
	}
	return empty, nil
}

// pause waits for a moment, or until ctx is over.
func pause(ctx context.Context) {
	select {
	case <-time.After(retryAfter):
	case <-ctx.Done():
	}
}

// wanted is what the flags say of a new disk.
type wanted struct {
	requests corev1.ResourceList
	class    *string
	access   []corev1.PersistentVolumeAccessMode
	mode     *corev1.PersistentVolumeMode
}

// wants reads the flags about a new disk.
func (u *upload) wants() (wanted, error) {
	if u.size == "" {
		return wanted{}, errors.New(needsSize)
	}
	size, err := resource.ParseQuantity(u.size)
	if err != nil || size.Sign() <= 0 {
		return wanted{}, fmt.Errorf("--size=%s is no size: write it as 10Gi", u.size)
	}
	w := wanted{requests: corev1.ResourceList{corev1.ResourceStorage: size}}
	if u.class != "" {
		w.class = &u.class
	}
	if u.access != "" {
		w.access = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(u.access)}
	}
	switch {
	case u.block || u.mode == "block":
		w.mode = new(corev1.PersistentVolumeBlock)
	case u.mode == "filesystem":
		w.mode = new(corev1.PersistentVolumeFilesystem)
	}
	return w, nil
}

// content is the content type of what is sent.
func (o *options) content() cdiv1.DataVolumeContentType {
	if o.archive != "" {
		return cdiv1.DataVolumeArchive
	}
	return cdiv1.DataVolumeKubeVirt
}

// bindNow has a DataVolume or claim that is there bound without a consumer, where that is asked for.
func (u *upload) bindNow(ctx context.Context, now client.Object) error {
	if value, is := now.GetAnnotations()[names.AnnotationBind]; !u.forceBind || is && value != "false" {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": now.GetUID(), "annotations": map[string]string{names.AnnotationBind: "true"}}})
	if err == nil {
		err = u.client.Patch(ctx, now, client.RawPatch(types.MergePatchType, patch))
	}
	if err != nil {
		return fmt.Errorf("having %s bound at once: %w", u.target.title(), err)
	}
	return nil
}

// createDataSource makes the DataSource that names the claim, where that is asked for and it is not there.
func (u *upload) createDataSource(ctx context.Context) error {
	if !u.dataSource {
		return nil
	}
	source := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: u.name, Labels: u.defaults.labels()},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: u.namespace, Name: u.name}}},
	}
	wanted := source.Spec
	err := u.client.Create(ctx, source)
	if apierrors.IsAlreadyExists(err) { // by an earlier attempt, perhaps
		if reading := u.client.Get(ctx, u.key(), source); reading == nil && equality.Semantic.DeepEqual(source.Spec, wanted) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("creating DataSource %s: %w", u.name, err)
	}
	u.say("DataSource %s/%s created", u.namespace, u.name)
	return nil
}

// labels say of a disk what suits it.
func (d defaults) labels() map[string]string {
	labels := map[string]string{}
	for label, value := range map[string]string{
		instancetype.DefaultInstancetypeLabel: d.instancetype, instancetype.DefaultInstancetypeKindLabel: d.instancetypeKind,
		instancetype.DefaultPreferenceLabel: d.preference, instancetype.DefaultPreferenceKindLabel: d.preferenceKind,
	} {
		if value != "" {
			labels[label] = value
		}
	}
	return labels
}
