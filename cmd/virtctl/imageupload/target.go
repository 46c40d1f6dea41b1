package imageupload

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"kubevirt.io/api/instancetype"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// target returns the DataVolume that the image is sent to, and makes it when it may.
func (u *upload) target(ctx context.Context) (*cdiv1.DataVolume, error) {
	dv := &cdiv1.DataVolume{}
	err := u.client.Get(ctx, u.key(), dv)
	switch {
	case apierrors.IsNotFound(err) && u.noCreate:
		return nil, fmt.Errorf("DataVolume %s/%s does not exist: leave out --no-create and give its --size", u.namespace, u.name)
	case apierrors.IsNotFound(err):
		return u.create(ctx)
	case err != nil:
		return nil, fmt.Errorf("reading DataVolume %s: %w", u.name, err)
	case dv.Spec.Source == nil || dv.Spec.Source.Upload == nil:
		return nil, fmt.Errorf("DataVolume %s/%s does not have the source upload: no image can be sent to it", u.namespace, u.name)
	case dv.Status.Phase == cdiv1.Succeeded:
		return nil, fmt.Errorf("PVC %s already successfully imported/cloned/updated", u.name) //nolint:staticcheck // the field's own words
	}
	u.say("Using existing DataVolume %s/%s", u.namespace, u.name)
	return dv, nil
}

func (u *upload) create(ctx context.Context) (*cdiv1.DataVolume, error) {
	dv, err := u.build()
	if err != nil {
		return nil, err
	}
	if err := u.client.Create(ctx, dv); err != nil {
		return nil, fmt.Errorf("creating DataVolume %s: %w", u.name, err)
	}
	u.say("DataVolume %s/%s created", u.namespace, u.name)
	if !u.dataSource {
		return dv, nil
	}
	source := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: u.name, Labels: u.defaults.labels()},
		Spec:       cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: u.namespace, Name: u.name}}},
	}
	if err := u.client.Create(ctx, source); err != nil {
		return nil, fmt.Errorf("creating DataSource %s: %w", u.name, err)
	}
	u.say("DataSource %s/%s created", u.namespace, u.name)
	return dv, nil
}

// build returns the DataVolume that the flags describe.
func (u *upload) build() (*cdiv1.DataVolume, error) {
	if u.size == "" {
		return nil, errors.New("when creating a resource, the size must be specified: give --size") //nolint:revive // the field's own words
	}
	size, err := resource.ParseQuantity(u.size)
	if err != nil || size.Sign() <= 0 {
		return nil, fmt.Errorf("--size=%s is no size: write it as 10Gi", u.size)
	}
	storage := &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceStorage: size},
	}}
	if u.class != "" {
		storage.StorageClassName = &u.class
	}
	if u.access != "" {
		storage.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(u.access)}
	}
	switch {
	case u.block || u.mode == "block":
		storage.VolumeMode = new(corev1.PersistentVolumeBlock)
	case u.mode == "filesystem":
		storage.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	}
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: u.name, Labels: u.defaults.labels()},
		Spec:       cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}, Storage: storage},
	}
	if u.forceBind {
		dv.Annotations = map[string]string{names.AnnotationBind: "true"}
	}
	return dv, nil
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

// await returns once the DataVolume is in phase, and errs when it will not be, or not in time.
func (u *upload) await(ctx context.Context, dv *cdiv1.DataVolume, phase cdiv1.DataVolumePhase, bound time.Duration) error {
	ctx, cancel := within(ctx, bound)
	defer cancel()
	told := false
	for {
		done, err := u.reached(ctx, dv, phase)
		if done || err != nil {
			return err
		}
		if !told && phase == cdiv1.UploadReady {
			u.say("Waiting for PVC %s upload pod to be ready...", u.name)
			told = true
		}
		if dv, err = u.next(ctx, dv); err != nil {
			return err
		}
	}
}

// reached says whether dv is in phase, and errs when it never will be.
func (u *upload) reached(ctx context.Context, dv *cdiv1.DataVolume, phase cdiv1.DataVolumePhase) (bool, error) {
	switch now := dv.Status.Phase; {
	case now == phase:
		return true, nil
	case now == cdiv1.Failed:
		return false, fmt.Errorf("DataVolume %s has failed: %s", u.name, said(dv))
	case now == cdiv1.WaitForFirstConsumer:
		return false, errors.New("cannot upload to DataVolume in WaitForFirstConsumer state, make sure the PVC is Bound, or use force-bind flag") //nolint:revive // the field's own words
	case ctx.Err() != nil:
		return false, fmt.Errorf("DataVolume %s is still %s, not %s: %s; raise --wait-secs or look at it with kubectl describe dv %s", u.name, now, phase, said(dv), u.name)
	}
	return false, nil
}

// next waits for the DataVolume's next state. When the time is over, it returns the last one.
func (u *upload) next(ctx context.Context, dv *cdiv1.DataVolume) (*cdiv1.DataVolume, error) {
	changes, err := u.client.Watch(ctx, &cdiv1.DataVolumeList{}, &client.ListOptions{
		Namespace: u.namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, u.name),
		Raw: &metav1.ListOptions{ResourceVersion: dv.ResourceVersion},
	})
	if ctx.Err() != nil {
		return dv, nil
	}
	if err != nil {
		return nil, fmt.Errorf("following DataVolume %s: %w", u.name, err)
	}
	defer changes.Stop()
	select {
	case <-ctx.Done():
		return dv, nil
	case change, ok := <-changes.ResultChan():
		now, isDV := change.Object.(*cdiv1.DataVolume)
		switch {
		case ok && change.Type == watch.Deleted:
			return nil, fmt.Errorf("DataVolume %s was deleted", u.name)
		case ok && isDV:
			return now, nil
		}
	}
	fresh := &cdiv1.DataVolume{} // the watch ended; begin anew
	err = u.client.Get(ctx, u.key(), fresh)
	switch {
	case ctx.Err() != nil:
		return dv, nil
	case err != nil:
		return nil, fmt.Errorf("reading DataVolume %s: %w", u.name, err)
	}
	return fresh, nil
}

// said is what the DataVolume's conditions say of what goes on.
func said(dv *cdiv1.DataVolume) string {
	for _, kind := range []cdiv1.DataVolumeConditionType{cdiv1.DataVolumeRunning, cdiv1.DataVolumeBound} {
		for _, condition := range dv.Status.Conditions {
			if condition.Type == kind && condition.Message != "" && condition.Status != corev1.ConditionTrue {
				return condition.Message
			}
		}
	}
	return "nothing is wrong"
}
