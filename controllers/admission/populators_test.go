package admission

import (
	"slices"
	"strings"
	"testing"
)

func TestBadSourcesOfClaimsAreRefusedWithThePath(t *testing.T) {
	const (
		from  = "apiVersion: cdi.kubevirt.io/v1beta1\nkind: VolumeImportSource\nmetadata: {name: x}\nspec: "
		clone = "apiVersion: cdi.kubevirt.io/v1beta1\nkind: VolumeCloneSource\nmetadata: {name: x}\nspec: "
		sent  = "apiVersion: cdi.kubevirt.io/v1beta1\nkind: VolumeUploadSource\nmetadata: {name: x}\nspec: "

		imports, clones, uploads = "/volumeimportsources-validate", "/volumeclonesources-validate", "/volumeuploadsources-validate"
	)
	for _, c := range []struct {
		path, object string
		want         []string
	}{
		{imports, from + "{source: {http: {url: 'https://example.com/disk', secretRef: s, certConfigMap: c}}, preallocation: true, contentType: kubevirt}", nil},
		{imports, from + "{source: {registry: {url: 'docker://example.com/disk:1'}}}", nil},
		{imports, from + "{source: {registry: {url: 'docker://example.com/disk:1', pullMethod: node}}}", nil},
		{imports, from + "{source: {registry: {url: 'docker://example.com/disk:1', pullMethod: node, certConfigMap: a}}}", []string{"spec.source.registry.certConfigMap"}},
		{imports, from + "{source: {s3: {url: 'https://example.com/bucket/files.tar'}}, contentType: archive}", nil},
		{imports, from + "{source: {blank: {}}}", nil},
		{imports, from + "{}", []string{"spec.source"}},
		{imports, from + "{source: {}}", []string{"spec.source"}},
		{imports, from + "{source: {blank: {}, http: {url: 'https://example.com/disk'}}}", []string{"spec.source"}},
		{imports, from + "{source: {http: {url: example}}}", []string{"spec.source.http.url"}},
		{imports, from + "{source: {blank: {}}, contentType: archive}", []string{"spec.contentType"}},
		{imports, from + "{source: {vddk: {url: a}}}", []string{"spec.source.vddk.url"}},
		{imports, from + "{source: {blank: {}}, targetClaim: a, finalCheckpoint: true}", []string{"spec.finalCheckpoint", "spec.targetClaim"}},
		{clones, clone + "{source: {kind: PersistentVolumeClaim, name: golden}, priorityClassName: high, preallocation: false}", nil},
		{clones, clone + "{source: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: golden}}", nil},
		{clones, clone + "{source: {kind: PersistentVolumeClaim, name: ''}}", []string{"spec.source.name"}},
		{clones, clone + "{source: {kind: VolumeSnapshot, name: golden}}", []string{"spec.source.apiGroup"}},
		{clones, clone + "{source: {apiGroup: v1, kind: PersistentVolumeClaim, name: golden}}", []string{"spec.source.apiGroup"}},
		{clones, clone + "{source: {kind: DataVolume, name: golden}, preallocation: true}", []string{"spec.preallocation", "spec.source.kind"}},
		{uploads, sent + "{contentType: kubevirt, preallocation: true}", nil},
		{uploads, sent + "{contentType: archive}", nil},
		{uploads, sent + "{contentType: archive, preallocation: true}", []string{"spec.preallocation"}},
		{uploads, sent + "{contentType: iso}", []string{"spec.contentType"}},
	} {
		response := ask(t, c.path, []byte(c.object), nil, "jane")
		if got := refusedPaths(response); response.Allowed != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s\nrefused %v, want %v: %+v", c.object, got, c.want, response.Result)
		}
	}
}

func TestASourceOfClaimsKeepsItsSpec(t *testing.T) {
	const source = "apiVersion: cdi.kubevirt.io/v1beta1\nkind: VolumeImportSource\nmetadata: {name: x}\nspec: {source: {http: {url: 'https://example.com/disk'}}}"
	other := strings.Replace(source, "/disk", "/other", 1)
	if response := ask(t, "/volumeimportsources-validate", []byte(other), []byte(source), "jane"); response.Allowed || !strings.Contains(response.Result.Message, "Cannot update VolumeImportSource Spec") {
		t.Errorf("a change of the URL: %+v", response)
	}
	labelled := strings.Replace(source, "name: x", "name: x, labels: {a: b}", 1)
	if response := ask(t, "/volumeimportsources-validate", []byte(labelled), []byte(source), "jane"); !response.Allowed {
		t.Errorf("a change of labels: %+v", response.Result)
	}
}
