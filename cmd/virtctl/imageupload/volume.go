package imageupload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
)

// volume is a DataVolume that is sent to.
type volume struct {
	*upload
	now *cdiv1.DataVolume
}

func (v *volume) title() string { return "DataVolume " + v.name }

func (v *volume) prepare(ctx context.Context) error {
	v.now = &cdiv1.DataVolume{}
	err := v.client.Get(ctx, v.key(), v.now)
	switch {
	case apierrors.IsNotFound(err) && v.noCreate:
		return fmt.Errorf("DataVolume %s/%s does not exist: leave out --no-create and give its --size", v.namespace, v.name)
	case apierrors.IsNotFound(err):
		return v.create(ctx)
	case err != nil:
		return fmt.Errorf("reading DataVolume %s: %w", v.name, err)
	case v.now.Spec.Source == nil || v.now.Spec.Source.Upload == nil:
		return fmt.Errorf("DataVolume %s/%s does not have the source upload: no image can be sent to it", v.namespace, v.name)
	case v.now.Status.Phase == cdiv1.Succeeded:
		return fmt.Errorf(hasDisk, v.name)
	case v.archive != "" && v.now.Spec.ContentType != cdiv1.DataVolumeArchive:
		return fmt.Errorf(takesImage, v.title())
	case v.archive == "" && v.now.Spec.ContentType == cdiv1.DataVolumeArchive:
		return fmt.Errorf(takesFiles, v.title())
	}
	v.say("Using existing DataVolume %s/%s", v.namespace, v.name)
	if err := v.bindNow(ctx, v.now); err != nil {
		return err
	}
	return v.createDataSource(ctx)
}

func (v *volume) create(ctx context.Context) error {
	var err error
	if v.now, err = v.build(); err != nil {
		return err
	}
	if err := v.client.Create(ctx, v.now); err != nil {
		return fmt.Errorf("creating DataVolume %s: %w", v.name, err)
	}
	v.say("DataVolume %s/%s created", v.namespace, v.name)
	return v.createDataSource(ctx)
}

// build returns the DataVolume that the flags describe. What they leave out its storage's profile says.
func (v *volume) build() (*cdiv1.DataVolume, error) {
	w, err := v.wants()
	if err != nil {
		return nil, err
	}
	dv := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.namespace, Name: v.name, Labels: v.defaults.labels()},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}},
			Storage: &cdiv1.StorageSpec{
				StorageClassName: w.class, AccessModes: w.access, VolumeMode: w.mode,
				Resources: corev1.VolumeResourceRequirements{Requests: w.requests},
			},
		},
	}
	if v.archive != "" {
		dv.Spec.ContentType = v.content()
	}
	if v.forceBind {
		dv.Annotations = map[string]string{names.AnnotationBind: "true"}
	}
	return dv, nil
}

func (v *volume) reached(ctx context.Context, goal goal) (bool, error) {
	wanted := map[bool]cdiv1.DataVolumePhase{true: cdiv1.UploadReady, false: cdiv1.Succeeded}[goal == ready]
	switch now := v.now.Status.Phase; {
	case now == wanted:
		return true, nil
	case now == cdiv1.Failed:
		return false, fmt.Errorf("DataVolume %s has failed: %s", v.name, v.said())
	case waits(now) && !v.forceBind: // with it the state may be one of before
		return false, fmt.Errorf(unbound, "DataVolume", now)
	case ctx.Err() != nil:
		return false, fmt.Errorf("DataVolume %s is still %s, not %s: %s; raise --wait-secs or look at it with kubectl describe dv %s", v.name, now, wanted, v.said(), v.name)
	}
	return false, nil
}

// waits says whether a DataVolume in phase waits for a consumer of its claim: CDI has another word for it where populators fill the claim.
func waits(phase cdiv1.DataVolumePhase) bool {
	return phase == cdiv1.WaitForFirstConsumer || phase == cdiv1.PendingPopulation
}

func (v *volume) next(ctx context.Context) (err error) {
	v.now, err = next(ctx, v.upload, v.now, &cdiv1.DataVolume{}, &cdiv1.DataVolumeList{})
	return err
}

func (v *volume) filled(ctx context.Context) bool {
	dv := &cdiv1.DataVolume{}
	return v.client.Get(ctx, v.key(), dv) == nil && dv.Status.Phase == cdiv1.Succeeded
}

// giveUp leaves the DataVolume as it is: it asks for an image until one was sent.
func (v *volume) giveUp(_ context.Context, _ bool, why error) error { return why }

// said is what the DataVolume's conditions say of what goes on.
func (v *volume) said() string {
	for _, kind := range []cdiv1.DataVolumeConditionType{cdiv1.DataVolumeRunning, cdiv1.DataVolumeBound} {
		for _, condition := range v.now.Status.Conditions {
			if condition.Type == kind && condition.Message != "" && condition.Status != corev1.ConditionTrue {
				return condition.Message
			}
		}
	}
	return nothingWrong
}
