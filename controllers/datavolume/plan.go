package datavolume

import (
	"fmt"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// kind is the way in which a DataVolume's claim is filled.
type kind int

// Ways to fill a claim.
const (
	kindImport   kind = iota // by an importer pod, from a URL
	kindBlank                // by an importer pod, with zeros
	kindClone                // by the CSI driver, from another claim
	kindUpload               // by an upload server, with what is sent to it
	kindExternal             // by the CSI driver or a populator that the claim's own dataSource names
)

// plan is what a DataVolume's spec asks for, as far as the spec alone tells.
type plan struct {
	kind kind
	http *cdiv1.DataVolumeSourceHTTP
	// source is the claim to clone; sourceRef the DataSource that names it.
	source    *cdiv1.DataVolumeSourcePVC
	sourceRef *cdiv1.DataVolumeSourceRef
}

// pods reports whether a pod of ours fills the claim.
func (p plan) pods() bool { return p.kind == kindImport || p.kind == kindBlank || p.kind == kindUpload }

// unsupported are the sources that other releases will fill, with what to do until then.
func unsupported(source *cdiv1.DataVolumeSource) string {
	for _, s := range []struct {
		set  bool
		name string
	}{
		{source.S3 != nil, "s3"}, {source.GCS != nil, "gcs"}, {source.Registry != nil, "registry"},
		{source.Imageio != nil, "imageio"}, {source.VDDK != nil, "vddk"},
		{source.Snapshot != nil, "snapshot"},
	} {
		if s.set {
			return fmt.Sprintf("spec.source.%s is not supported yet; use http, upload, blank or pvc", s.name)
		}
	}
	return ""
}

// newPlan reads dv's spec. The message of refused is empty, or says what cannot be done and what to do instead.
func newPlan(dv *cdiv1.DataVolume) (p plan, refused string) {
	spec := &dv.Spec
	switch {
	case spec.PVC == nil && spec.Storage == nil:
		return p, "neither spec.pvc nor spec.storage is set; set one of them"
	case spec.PVC != nil && spec.Storage != nil:
		return p, "both spec.pvc and spec.storage are set; keep one of them"
	case spec.ContentType == cdiv1.DataVolumeArchive:
		return p, "spec.contentType archive is not supported yet; publish the disk as an image"
	case len(spec.Checkpoints) > 0:
		return p, "spec.checkpoints is not supported yet; import the disk in one stage"
	case spec.SourceRef != nil:
		if spec.SourceRef.Kind != cdiv1.DataVolumeDataSource {
			return p, fmt.Sprintf("spec.sourceRef.kind %q is not supported; use DataSource", spec.SourceRef.Kind)
		}
		return plan{kind: kindClone, sourceRef: spec.SourceRef}, ""
	case spec.Source == nil:
		if dataSource(dv) {
			return plan{kind: kindExternal}, ""
		}
		return p, "spec has no source; set spec.source or spec.sourceRef"
	}
	if message := unsupported(spec.Source); message != "" {
		return p, message
	}
	switch source := spec.Source; {
	case source.HTTP != nil:
		return plan{kind: kindImport, http: source.HTTP}, ""
	case source.Upload != nil:
		return plan{kind: kindUpload}, ""
	case source.Blank != nil:
		return plan{kind: kindBlank}, ""
	case source.PVC != nil:
		return plan{kind: kindClone, source: source.PVC}, ""
	}
	return p, "spec.source names no source; set http, upload, blank or pvc"
}

// dataSource reports whether the claim's own spec says what fills it.
func dataSource(dv *cdiv1.DataVolume) bool {
	if pvc := dv.Spec.PVC; pvc != nil {
		return pvc.DataSource != nil || pvc.DataSourceRef != nil
	}
	return dv.Spec.Storage.DataSource != nil || dv.Spec.Storage.DataSourceRef != nil
}
