package datavolume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/transfer"
)

func TestAClaimSaysWhetherItsDiskIsPreallocated(t *testing.T) {
	for name, c := range map[string]struct {
		spec   cdiv1.DataVolumeSpec
		config bool
		kind   kind
		copied bool
		result transfer.Result
		want   string
	}{
		"one that asks for it":             {spec: cdiv1.DataVolumeSpec{Preallocation: new(true)}, kind: kindImport, want: "true"},
		"one that asks for nothing":        {kind: kindImport},
		"one where all are":                {config: true, kind: kindBlank, want: "true"},
		"one that asks not to be":          {spec: cdiv1.DataVolumeSpec{Preallocation: new(false)}, config: true, kind: kindUpload},
		"a copy":                           {spec: cdiv1.DataVolumeSpec{Preallocation: new(true)}, kind: kindCopy, want: "true"},
		"a copy from another namespace":    {spec: cdiv1.DataVolumeSpec{Preallocation: new(true)}, kind: kindClone, copied: true, want: "true"},
		"a driver's clone":                 {spec: cdiv1.DataVolumeSpec{Preallocation: new(true)}, kind: kindClone},
		"an archive":                       {spec: cdiv1.DataVolumeSpec{Preallocation: new(true), ContentType: cdiv1.DataVolumeArchive}, kind: kindImport},
		"one that could not be filled":     {spec: cdiv1.DataVolumeSpec{Preallocation: new(true)}, kind: kindImport, result: transfer.Result{Reason: transfer.TooSmall}},
		"one that another's program fills": {spec: cdiv1.DataVolumeSpec{Preallocation: new(true)}, kind: kindExternal},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{dv: &cdiv1.DataVolume{Spec: c.spec}, claim: &corev1.PersistentVolumeClaim{}, plan: plan{kind: c.kind}}
			s.config.Preallocation = c.config
			if c.copied {
				s.claim.Annotations = map[string]string{AnnotationCopiedFrom: "x"}
			}
			if got := outcome(s, c.result)[AnnotationPreallocated]; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
