package datavolume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/names"
)

// LabelApplyProfile on a claim, when it is true, has it completed from the StorageProfile of its class when it is created.
const LabelApplyProfile = "cdi.kubevirt.io/applyStorageProfile"

// Complete sets in a new claim with LabelApplyProfile what a DataVolume's spec.storage would get: class, access modes, volume
// mode, and a size with the overhead of a file system. It does nothing to a claim that names its volume, or where the CDI
// object has that disabled. What cannot be told Incomplete says of the error.
func Complete(ctx context.Context, reader client.Reader, claim *corev1.PersistentVolumeClaim) error {
	if claim.Labels[LabelApplyProfile] != valueTrue || claim.Spec.VolumeName != "" {
		return nil
	}
	config, err := get(ctx, reader, types.NamespacedName{Name: names.CDIConfigName}, &cdiv1.CDIConfig{})
	if err != nil {
		return err
	}
	if config == nil {
		config = &cdiv1.CDIConfig{Status: cdiconfig.Status(&cdiv1.CDIConfigSpec{}, nil)}
	}
	if config.Spec.WebhookPvcRendering == cdiv1.WebhookPvcRenderingDisabled {
		return nil
	}
	var classes storagev1.StorageClassList
	if err := reader.List(ctx, &classes); err != nil {
		return fmt.Errorf("listing storage classes: %w", err)
	}
	in := claimInput{Config: config.Status, Class: classFor(claim, classes.Items)}
	if in.Class != nil {
		if in.Profile, err = get(ctx, reader, types.NamespacedName{Name: in.Class.Name}, &cdiv1.StorageProfile{}); err != nil {
			return err
		}
	}
	in.DataVolume = &cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{ContentType: cdiv1.DataVolumeContentType(claim.Annotations[AnnotationContentType])}}
	return complete(&claim.Spec, in)
}

// Incomplete is why a claim cannot be completed, "" when err is of another kind.
func Incomplete(err error) string {
	if unknown, is := errors.AsType[*unknownModes](err); is {
		return unknown.message
	}
	return ""
}

// classFor is the class that claim names, or else the default one; nil when there is none of it.
func classFor(claim *corev1.PersistentVolumeClaim, classes []storagev1.StorageClass) *storagev1.StorageClass {
	if claim.Spec.StorageClassName == nil {
		return defaultClass(classes)
	}
	for n := range classes {
		if classes[n].Name == *claim.Spec.StorageClassName {
			return &classes[n]
		}
	}
	return nil
}
