package processor

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/fixture"
)

// recorded reads libvirt's answers of a folder below testdata.
func recorded(t *testing.T, name string) *Processor {
	t.Helper()
	read := func(file string) []byte {
		content, err := os.ReadFile(filepath.Join("testdata", name, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return content
	}
	p, err := Read(Documents{Host: read(HostFile), Domain: read(DomainFile), Features: read(FeaturesFile)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLabelsOfRecordedProcessors(t *testing.T) {
	for _, name := range []string{"kvm", "emulation"} {
		t.Run(name, func(t *testing.T) {
			labels := Labels(recorded(t, name), Obsolete(nil))
			var lines strings.Builder
			for _, key := range slices.Sorted(maps.Keys(labels)) {
				lines.WriteString(key + "=" + labels[key] + "\n")
				if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(labels[key])...); len(problems) > 0 {
					t.Errorf("no node can have %s=%s: %v", key, labels[key], problems)
				}
			}
			fixture.Golden(t, filepath.Join("testdata", name, "labels.txt"), lines.String())
		})
	}
}

func TestModelsThatAreObsoleteGetNoLabel(t *testing.T) {
	p := recorded(t, "kvm")
	kubevirt := &v1.KubeVirt{}
	kubevirt.Spec.Configuration.ObsoleteCPUModels = map[string]bool{p.Model: true, "Penryn": false}
	labels := Labels(p, Obsolete(kubevirt))
	for key, want := range map[string]bool{
		v1.CPUModelLabel + p.Model: false, v1.SupportedHostModelMigrationCPU + p.Model: false,
		v1.HostModelCPULabel + p.Model: true, v1.NodeHostModelIsObsoleteLabel: true,
		v1.CPUModelLabel + "Penryn": true, v1.CPUModelLabel + "Conroe": true, // the object's list is in the place of the field's
	} {
		if (labels[key] == "true") != want {
			t.Errorf("label %s is %q", key, labels[key])
		}
	}
	if labels := Labels(p, Obsolete(nil)); labels[v1.CPUModelLabel+"Conroe"] != "" || labels[v1.NodeHostModelIsObsoleteLabel] != "" {
		t.Errorf("by the field's list: %v", labels)
	}
}

func TestWhatIsNotKnownHasNoLabels(t *testing.T) {
	for name, p := range map[string]*Processor{
		"nothing": nil, "an empty one": {}, "names of no label": {Usable: []string{"a b", ""}, Features: []string{"/"}, Required: []string{"x"}},
	} {
		if labels := Labels(p, nil); len(labels) > 0 {
			t.Errorf("%s: %v", name, labels)
		}
	}
	if _, err := Read(Documents{Domain: []byte("<domainCapabilities><cpu>")}); err == nil || !strings.Contains(err.Error(), DomainFile) {
		t.Errorf("a document that is cut off: %v", err)
	}
}
