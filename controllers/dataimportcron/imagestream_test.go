package dataimportcron

import (
	"strings"
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"
)

func TestATagStandsForItsNewestImage(t *testing.T) {
	other := "sha256:" + strings.Repeat("f", 64)
	text := `{status: {tags: [
		{tag: "12", items: [{image: "` + someDigest + `", dockerImageReference: "registry.local/images/debian@` + someDigest + `"}, {image: "` + other + `", dockerImageReference: old}]},
		{tag: "13", items: [{image: "` + other + `", dockerImageReference: "registry.local/images/debian@` + other + `"}]},
		{tag: empty},
		{tag: bare, items: [{image: "` + other + `"}]},
		{tag: odd, items: [{image: "12", dockerImageReference: a}]}]}}`
	stream := &imageStream{}
	if err := yaml.Unmarshal([]byte(text), stream); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]newest{
		"debian":    {someDigest, "registry.local/images/debian@" + someDigest},
		"debian:12": {someDigest, "registry.local/images/debian@" + someDigest},
		"debian:13": {other, "registry.local/images/debian@" + other},
	} {
		of, tag, err := splitStream(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := stream.newest(of, tag); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	for tag, want := range map[string]string{
		"14": "ImageStream debian has no tag 14", "empty": "tag empty of ImageStream debian has no image yet",
		"bare": "without a digest or an address", "odd": "without a digest or an address",
	} {
		if got, err := stream.newest("debian", tag); err == nil || !strings.Contains(err.Error(), want) || got != (newest{}) {
			t.Errorf("%s: %+v, %v; want %q", tag, got, err, want)
		}
	}
	if _, err := (&imageStream{}).newest("debian", ""); err == nil || !strings.Contains(err.Error(), "has no tag yet") {
		t.Errorf("one without tags: %v", err)
	}
	for _, name := range []string{"", ":12", "debian:", "debian:1:2", "images/debian", "debian@" + someDigest} {
		if _, _, err := splitStream(name); err == nil || !strings.Contains(err.Error(), "NAME:TAG") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The image lies where the stream has it, and is imported from there, whatever the stream's tag becomes.
func TestAnImageOfAStreamIsImportedByItsDigest(t *testing.T) {
	cron := &cdiv1.DataImportCron{}
	cron.Spec.ManagedDataSource = "debian"
	from := &cdiv1.DataVolumeSourceRegistry{ImageStream: new("debian:12"), PullMethod: new(cdiv1.RegistryPullNode)}
	cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: from}
	dv, err := newDataVolume(cron, newest{someDigest, "registry.local:5000/images/debian@" + someDigest})
	if err != nil {
		t.Fatal(err)
	}
	got := dv.Spec.Source.Registry
	if got.ImageStream != nil || *got.URL != "docker://registry.local:5000/images/debian@"+someDigest || *got.PullMethod != cdiv1.RegistryPullNode || from.ImageStream == nil {
		t.Errorf("the source is %+v, the template's %+v", got, from)
	}
	for _, at := range []string{"", "not an image"} {
		if _, err := newDataVolume(cron, newest{someDigest, at}); err == nil {
			t.Errorf("%q is where an image lies", at)
		}
	}
}
