package dataimportcron

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// kindStream is OpenShift's: a name for images, whose tags stand for one image after another.
var kindStream = schema.GroupVersionKind{Group: "image.openshift.io", Version: "v1", Kind: "ImageStream"}

// imageStream is what is read of an ImageStream (image.openshift.io/v1, status.tags).
type imageStream struct {
	Status struct {
		Tags []streamTag `json:"tags"`
	} `json:"status"`
}

// streamTag has the images that a tag stood for, the newest first.
type streamTag struct {
	Tag   string `json:"tag"`
	Items []struct {
		Image     string `json:"image"`                // its digest
		Reference string `json:"dockerImageReference"` // registry/path@digest
	} `json:"items"`
}

// ofStream reports whether the template's image is one of an ImageStream.
func ofStream(source *cdiv1.DataVolumeSource) bool {
	return source != nil && source.Registry != nil && source.Registry.ImageStream != nil
}

// askStream learns which image the ImageStream of a DataImportCron's namespace stands for now.
func (r *Reconciler) askStream(ctx context.Context, cron *cdiv1.DataImportCron) (found newest, failed, err error) {
	name, tag, err := splitStream(*cron.Spec.Template.Spec.Source.Registry.ImageStream)
	if err != nil {
		return newest{}, err, nil
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kindStream)
	err = r.live.Get(ctx, types.NamespacedName{Namespace: cron.Namespace, Name: name}, object)
	switch {
	case meta.IsNoMatchError(err):
		return newest{}, fmt.Errorf("this cluster has no API %s, which is OpenShift's; name the image by source.registry.url", kindStream.Group), nil
	case apierrors.IsNotFound(err):
		return newest{}, fmt.Errorf("there is no ImageStream %s, which source.registry.imageStream names; create it in this namespace", name), nil
	case err != nil:
		return newest{}, nil, fmt.Errorf("reading ImageStream %s: %w", name, err)
	}
	stream := &imageStream{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, stream); err != nil {
		return newest{}, fmt.Errorf("ImageStream %s is not what OpenShift has by that name: %w", name, err), nil
	}
	found, failed = stream.newest(name, tag)
	return found, failed, nil
}

// splitStream splits NAME or NAME:TAG.
func splitStream(text string) (name, tag string, err error) {
	name, tag, tagged := strings.Cut(text, ":")
	if name == "" || tagged && tag == "" || strings.ContainsAny(text, "/@") || strings.Contains(tag, ":") {
		return "", "", fmt.Errorf("source.registry.imageStream is %q; write NAME or NAME:TAG of an ImageStream of this namespace", text)
	}
	return name, tag, nil
}

// newest is the image that a tag stands for; without a tag the first one does, as CDI has it.
func (s *imageStream) newest(name, tag string) (newest, error) {
	for _, t := range s.Status.Tags {
		if tag != "" && t.Tag != tag {
			continue
		}
		if len(t.Items) == 0 {
			return newest{}, fmt.Errorf("tag %s of ImageStream %s has no image yet; import one (oc import-image)", t.Tag, name)
		}
		item := t.Items[0]
		if !isWhole(item.Image) || item.Reference == "" {
			return newest{}, fmt.Errorf("tag %s of ImageStream %s has an image without a digest or an address: image is %q, dockerImageReference %q", t.Tag, name, item.Image, item.Reference)
		}
		return newest{digest: item.Image, at: item.Reference}, nil
	}
	if tag == "" {
		return newest{}, fmt.Errorf("ImageStream %s has no tag yet; import an image (oc import-image)", name)
	}
	return newest{}, fmt.Errorf("ImageStream %s has no tag %s; name one that it has", name, tag)
}
