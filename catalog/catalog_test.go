package catalog

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/catalog/declare"
)

// documents returns the YAML documents of a folder of Types.
func documents(t *testing.T, folder string) [][]byte {
	t.Helper()
	paths, err := fs.Glob(Types(), path.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for _, p := range paths {
		content, err := fs.ReadFile(Types(), p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.Split(content, []byte("---\n"))[1:]...)
	}
	return all
}

func TestInstancetypes(t *testing.T) {
	bySeries, names := map[string]int{}, map[string]bool{}
	for _, document := range documents(t, "instancetypes") {
		it := &v1beta1.VirtualMachineClusterInstancetype{}
		if err := yaml.UnmarshalStrict(document, it); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if names[it.Name] {
			t.Errorf("there are two of %s", it.Name)
		}
		names[it.Name] = true
		series, size, _ := strings.Cut(it.Name, ".")
		bySeries[series]++
		for label, want := range map[string]string{
			"size": size, "memory": it.Spec.Memory.Guest.String(), "vendor": "kubevirt.io", "common-instancetypes-version": declare.Version, "version": "1",
		} {
			if got := it.Labels["instancetype.kubevirt.io/"+label]; got != want {
				t.Errorf("%s: label %s is %q, want %q", it.Name, label, got, want)
			}
		}
		if it.Annotations["instancetype.kubevirt.io/displayName"] == "" || it.Annotations["instancetype.kubevirt.io/description"] == "" {
			t.Errorf("%s does not say what it is", it.Name)
		}
	}
	for series, want := range map[string]int{"cx1": 12, "d1": 10, "m1": 10, "n1": 6, "o1": 9, "rt1": 8, "u1": 10} {
		if bySeries[series] != want {
			t.Errorf("series %s has %d sizes, want %d", series, bySeries[series], want)
		}
	}
	if len(names) != 65 {
		t.Errorf("there are %d instance types, want 65", len(names))
	}
	for _, name := range []string{"u1.nano", "u1.2xmedium", "cx1.medium1gi", "m1.8xlarge1gi", "rt1.micro", "n1.8xlarge", "o1.nano", "d1.8xlarge"} {
		if !names[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestPreferences(t *testing.T) {
	names := map[string]bool{}
	for _, document := range documents(t, "preferences") {
		p := &v1beta1.VirtualMachineClusterPreference{}
		if err := yaml.UnmarshalStrict(document, p); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if names[p.Name] {
			t.Errorf("there are two of %s", p.Name)
		}
		names[p.Name] = true
		if os := p.Labels["instancetype.kubevirt.io/os-type"]; os == "" || p.Spec.Annotations["vm.kubevirt.io/os"] != os {
			t.Errorf("%s is for %q, and says %q of its VMs", p.Name, os, p.Spec.Annotations["vm.kubevirt.io/os"])
		}
		if p.Annotations["openshift.io/display-name"] == "" || !strings.HasPrefix(p.Annotations["tags"], "hidden,kubevirt,") {
			t.Errorf("%s has annotations %v", p.Name, p.Annotations)
		}
	}
	if len(names) != 54 {
		t.Errorf("there are %d preferences, want 54", len(names))
	}
	for name := range strings.FieldsSeq(`alpine centos.stream9 centos.stream9.desktop centos.stream9.dpdk centos.stream10 centos.stream10.desktop cirros debian
		fedora fedora.arm64 fedora.s390x legacy linux linux.efi linux.virtiotransitional opensuse.leap opensuse.tumbleweed oraclelinux
		rhel.7 rhel.7.desktop rhel.8 rhel.8.desktop rhel.8.dpdk rhel.9 rhel.9.arm64 rhel.9.desktop rhel.9.dpdk rhel.9.realtime rhel.9.s390x
		rhel.10 rhel.10.arm64 rhel.10.s390x sles ubuntu windows.xp windows.2k3 windows.7 windows.7.virtio windows.2k8 windows.2k8.virtio
		windows.2k12 windows.2k12.virtio windows.10 windows.10.virtio windows.2k16 windows.2k16.virtio windows.2k19 windows.2k19.virtio
		windows.11 windows.11.virtio windows.2k22 windows.2k22.virtio windows.2k25 windows.2k25.virtio`) {
		if !names[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

// What is embedded is what is declared; hack/generate writes it.
func TestFilesAreGenerated(t *testing.T) {
	for folder, generate := range map[string]func() (map[string][]byte, error){
		"instancetypes": declare.Instancetypes, "preferences": declare.Preferences,
	} {
		files, err := generate()
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range files {
			if got, err := fs.ReadFile(Types(), path.Join(folder, name)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s/%s is not up to date (%v): go run ./hack/generate", folder, name, err)
			}
		}
	}
}

// Each boot image has its line in the docs, and suits an instance type and a preference that there are.
func TestBootSources(t *testing.T) {
	page, err := os.ReadFile("../docs/bootsources.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, document := range slices.Concat(documents(t, "instancetypes"), documents(t, "preferences")) {
		object := &metav1.PartialObjectMetadata{}
		if err := yaml.Unmarshal(document, object); err != nil {
			t.Fatal(err)
		}
		there[object.Name] = true
	}
	paths, err := fs.Glob(BootSources(), "bootsources/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, p := range paths {
		content, err := fs.ReadFile(BootSources(), p)
		if err != nil {
			t.Fatal(err)
		}
		cron := &cdiv1.DataImportCron{}
		if err := yaml.UnmarshalStrict(content, cron); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		spec := cron.Spec.Template.Spec
		size := spec.Storage.Resources.Requests[corev1.ResourceStorage]
		preference := cron.Labels["instancetype.kubevirt.io/default-preference"]
		line := fmt.Sprintf("| `%s` | `%s` | `%s` | %s | `%s` |", cron.Name, cron.Spec.ManagedDataSource,
			strings.TrimPrefix(*spec.Source.Registry.URL, "docker://"), size.String(), preference)
		if !strings.Contains(string(page), line) {
			t.Errorf("docs/bootsources.md lacks the line\n%s", line)
		}
		if !there[preference] || !there[cron.Labels["instancetype.kubevirt.io/default-instancetype"]] {
			t.Errorf("%s: labels %v name what is not there", p, cron.Labels)
		}
	}
}
