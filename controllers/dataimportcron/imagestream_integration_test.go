//go:build integration

package dataimportcron_test

import (
	"context"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/dataimportcron"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// streams is the definition of OpenShift's ImageStreams, as far as its clients see it.
func streams() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "imagestreams.image.openshift.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "image.openshift.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "imagestreams", Singular: "imagestream", Kind: "ImageStream", ListKind: "ImageStreamList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	}
}

// stream is an ImageStream whose tag 12 stands for the image of a digest.
func (w *world) stream(digest string) *unstructured.Unstructured {
	item := map[string]any{"image": digest, "dockerImageReference": "registry.local/images/debian@" + digest}
	stream := &unstructured.Unstructured{Object: map[string]any{
		"status": map[string]any{"tags": []any{map[string]any{"tag": "12", "items": []any{item}}}},
	}}
	stream.SetAPIVersion("image.openshift.io/v1")
	stream.SetKind("ImageStream")
	stream.SetNamespace(w.namespace)
	stream.SetName("debian")
	return stream
}

// TestImagesOfAStreamAreImported has the API of ImageStreams come, then a stream, then another image for its tag.
func TestImagesOfAStreamAreImported(t *testing.T) {
	w := start(t)
	says := func(words string) func() bool {
		return func() bool {
			for _, c := range w.cron("cron").Status.Conditions {
				if c.Type == cdiv1.DataImportCronUpToDate {
					return c.Reason == "NoDigest" && strings.Contains(c.Message, words)
				}
			}
			return false
		}
	}
	w.create("cron", func(cron *cdiv1.DataImportCron) {
		cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
			ImageStream: new("debian:12"), PullMethod: new(cdiv1.RegistryPullNode),
		}}
	})
	w.until("it says that there are no ImageStreams", says("no API image.openshift.io"))
	definition := streams()
	w.must(w.Create(t.Context(), definition))
	t.Cleanup(func() { w.must(client.IgnoreNotFound(w.Delete(context.Background(), definition))) })
	w.until("they are served", func() bool {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(definition), definition))
		for _, c := range definition.Status.Conditions {
			if c.Type == apiextensionsv1.Established {
				return c.Status == apiextensionsv1.ConditionTrue
			}
		}
		return false
	})
	w.until("it says that there is none of the name", func() bool {
		w.later(2*time.Hour, "", "cron")
		return says("there is no ImageStream debian")()
	})
	first, second := "sha256:"+strings.Repeat("1a", 32), "sha256:"+strings.Repeat("2b", 32)
	stream := w.stream(first)
	w.must(w.Create(t.Context(), stream))
	var before []string
	for _, digest := range []string{first, second} {
		if digest == second {
			stream.Object["status"] = w.stream(second).Object["status"]
			w.must(w.Update(t.Context(), stream))
		}
		w.later(2*time.Hour, "", "cron")
		dv := w.importing("cron", before...)
		from := dv.Spec.Source.Registry
		if from == nil || from.ImageStream != nil || *from.URL != "docker://registry.local/images/debian@"+digest || *from.PullMethod != cdiv1.RegistryPullNode {
			t.Errorf("what is imported is %v", dv.Spec.Source)
		}
		notes := w.cron("cron").Annotations
		if notes[dataimportcron.AnnotationDesired] != digest || notes[dataimportcron.AnnotationStreamImage] != "registry.local/images/debian@"+digest {
			t.Errorf("noted is %v", notes)
		}
		before = append(before, string(dv.UID))
		w.end(dv.Name, transfer.Result{Digest: "slipway2:00"})
		w.until("the DataSource names the image", func() bool { _, claim := w.source(); return claim == dv.Name })
	}
}
