package datavolume

import (
	"fmt"

	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// kind is the way in which a DataVolume's claim is filled.
type kind int

// Ways to fill a claim.
const (
	kindImport   kind = iota // by an importer pod, from a server
	kindBlank                // by an importer pod, with zeros
	kindClone                // by the CSI driver, from another claim or a snapshot
	kindCopy                 // by an importer pod, from another claim: a clone that no driver makes
	kindUpload               // by an upload server, with what is sent to it
	kindExternal             // by the CSI driver or a populator that the claim's own dataSource names
)

// plan is what a DataVolume's spec asks for, as far as the spec alone tells.
type plan struct {
	kind kind
}

// pods reports whether a pod of ours fills the claim.
func (p plan) pods() bool {
	return p.kind == kindImport || p.kind == kindBlank || p.kind == kindUpload || p.kind == kindCopy
}

// clones reports whether the claim becomes like another, in whichever way.
func (p plan) clones() bool { return p.kind == kindClone || p.kind == kindCopy }

// unsupported are the sources that other releases will fill, with what to do until then.
func unsupported(source *cdiv1.DataVolumeSource) string {
	for _, s := range []struct {
		set  bool
		name string
	}{
		{source.Imageio != nil, "imageio"}, {source.VDDK != nil, "vddk"},
	} {
		if s.set {
			return fmt.Sprintf("spec.source.%s is not supported yet; use http, s3, gcs, registry, upload, blank, pvc or snapshot", s.name)
		}
	}
	return ""
}

// refusedRegistry says what of a registry's source cannot be done. Admission says it before,
// of what comes by it.
func refusedRegistry(from *cdiv1.DataVolumeSourceRegistry) string {
	switch {
	case from.ImageStream != nil && from.URL != nil:
		return "spec.source.registry has both url and imageStream; keep one of them"
	case from.ImageStream != nil && (*from.ImageStream == "" || ptr.Deref(from.PullMethod, "") != cdiv1.RegistryPullNode):
		return "spec.source.registry.imageStream is supported with pullMethod node only, and needs a name; set both, or use url"
	case from.ImageStream == nil && from.URL == nil:
		return "spec.source.registry has no url; set it"
	case from.PullMethod != nil && *from.PullMethod != cdiv1.RegistryPullPod && *from.PullMethod != cdiv1.RegistryPullNode:
		return fmt.Sprintf("spec.source.registry.pullMethod %s is unknown; use pod or node", *from.PullMethod)
	}
	return ""
}

// newPlan reads dv's spec. The message of refused is empty, or says what cannot be done and what to do instead.
func newPlan(dv *cdiv1.DataVolume) (p plan, refused string) {
	spec := &dv.Spec
	archive, limit := refuseArchive(dv), refuseLimit(dv)
	switch {
	case spec.PVC == nil && spec.Storage == nil:
		return p, "neither spec.pvc nor spec.storage is set; set one of them"
	case spec.PVC != nil && spec.Storage != nil:
		return p, "both spec.pvc and spec.storage are set; keep one of them"
	case archive != "":
		return p, archive
	case limit != "":
		return p, limit
	case len(spec.Checkpoints) > 0:
		return p, "spec.checkpoints is not supported yet; import the disk in one stage"
	case spec.SourceRef != nil:
		if spec.SourceRef.Kind != cdiv1.DataVolumeDataSource {
			return p, fmt.Sprintf("spec.sourceRef.kind %q is not supported; use DataSource", spec.SourceRef.Kind)
		}
		return plan{kind: kindClone}, ""
	case spec.Source == nil:
		if dataSource(dv) {
			return plan{kind: kindExternal}, ""
		}
		return p, "spec has no source; set spec.source or spec.sourceRef"
	}
	return ofSource(spec.Source)
}

// ofSource reads the source of a spec, as newPlan does the rest.
func ofSource(source *cdiv1.DataVolumeSource) (p plan, refused string) {
	if message := unsupported(source); message != "" {
		return p, message
	}
	switch {
	case source.Registry != nil:
		return plan{kind: kindImport}, refusedRegistry(source.Registry)
	case downloads(source):
		return plan{kind: kindImport}, ""
	case source.Upload != nil:
		return plan{kind: kindUpload}, ""
	case source.Blank != nil:
		return plan{kind: kindBlank}, ""
	case clones(source):
		return plan{kind: kindClone}, ""
	}
	return p, "spec.source names no source; set http, s3, gcs, registry, upload, blank, pvc or snapshot"
}

// dataSource reports whether the claim's own spec says what fills it.
func dataSource(dv *cdiv1.DataVolume) bool {
	if pvc := dv.Spec.PVC; pvc != nil {
		return pvc.DataSource != nil || pvc.DataSourceRef != nil
	}
	return dv.Spec.Storage.DataSource != nil || dv.Spec.Storage.DataSourceRef != nil
}
