package populator

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func TestWhatIsSentToAClaimIsInItsAnnotations(t *testing.T) {
	const content = "cdi.kubevirt.io/storage.contentType"
	for name, c := range map[string]struct {
		notes map[string]string
		kind  cdiv1.DataVolumeContentType
		full  *bool
		fails string
	}{
		"nothing":             {nil, "", nil, ""},
		"a disk":              {map[string]string{content: "kubevirt", annotationPreallocation: "false"}, cdiv1.DataVolumeKubeVirt, new(false), ""},
		"files":               {map[string]string{content: "archive"}, cdiv1.DataVolumeArchive, nil, ""},
		"a whole disk":        {map[string]string{annotationPreallocation: "true"}, "", new(true), ""},
		"what is not there":   {map[string]string{content: "iso"}, "", nil, content + ` is "iso"`},
		"perhaps a whole one": {map[string]string{annotationPreallocation: "perhaps"}, "", nil, annotationPreallocation + ` is "perhaps"`},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{}
			claim.Annotations = c.notes
			source, err := sourceOf(claim)
			switch {
			case c.fails != "":
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v, want %s", err, c.fails)
				}
			case err != nil || source.Spec.ContentType != c.kind || (source.Spec.Preallocation == nil) != (c.full == nil):
				t.Errorf("%+v %v", source, err)
			case c.full != nil && *source.Spec.Preallocation != *c.full:
				t.Errorf("preallocation is %t", *source.Spec.Preallocation)
			}
		})
	}
}
