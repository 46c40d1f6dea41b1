// Package docs_test holds the documentation to what it says: its examples are read and checked
// as the API server and admission would, its links lead somewhere.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	templatev1 "github.com/openshift/api/template/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/catalog/template"
	"github.com/slipway-vm/slipway/controllers/admission/backup"
	"github.com/slipway-vm/slipway/controllers/admission/datavolume"
	"github.com/slipway-vm/slipway/controllers/admission/export"
	"github.com/slipway-vm/slipway/controllers/admission/pool"
	"github.com/slipway-vm/slipway/controllers/admission/replicaset"
	"github.com/slipway-vm/slipway/controllers/admission/restore"
	"github.com/slipway-vm/slipway/controllers/admission/snapshot"
	"github.com/slipway-vm/slipway/controllers/admission/templaterequest"
	"github.com/slipway-vm/slipway/controllers/admission/virtualmachine"
	"github.com/slipway-vm/slipway/controllers/admission/virtualmachineinstance"
	"github.com/slipway-vm/slipway/controllers/admission/vmclone"
	"github.com/slipway-vm/slipway/controllers/kubevirtconfig"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/supported"
)

var (
	block = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	link  = regexp.MustCompile(`\]\(([^)#: ]+)(#[^)]*)?\)`)
	known = scheme.New()
)

// pages are the files that are written for users, relative to this folder.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "../README.md", "../pipelines/*/README.md", "../tasks/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("pages %s: %v, %v", pattern, found, err)
		}
		all = append(all, found...)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Every YAML block of a page holds whole objects that decode strictly and are admitted.
func TestExamplesAreAdmitted(t *testing.T) {
	for _, page := range pages(t) {
		for i, example := range block.FindAllStringSubmatch(read(t, page), -1) {
			for j, document := range strings.Split(example[1], "\n---\n") {
				check(t, page, i+1, j+1, document)
			}
		}
	}
	for _, path := range []string{"hyperconverged.yaml", "hostpathprovisioner.yaml"} {
		check(t, path, 1, 1, read(t, path))
	}
}

func check(t *testing.T, page string, example, document int, text string) {
	t.Helper()
	fail := func(problem any) { t.Errorf("%s, example %d, document %d: %v", page, example, document, problem) }
	object, err := decode(text)
	if err != nil {
		fail(err)
		return
	}
	errs, err := admit(object, text)
	if err != nil {
		fail(err)
	}
	for _, problem := range errs {
		fail(problem)
	}
}

// decode reads text strictly as the type that the project's scheme has for its kind.
func decode(text string) (runtime.Object, error) {
	var head unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &head.Object); err != nil {
		return nil, err
	}
	object, err := known.New(head.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return object, yaml.UnmarshalStrict([]byte(text), object)
}

// admit returns what the API server and admission would say of object.
func admit(object runtime.Object, text string) (field.ErrorList, error) {
	var tree unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &tree.Object); err != nil {
		return nil, err
	}
	raw := tree.Object
	if errs, err := lacking(tree.GroupVersionKind(), raw); err != nil || len(errs) > 0 {
		return errs, err
	}
	path := field.NewPath("spec")
	switch object := object.(type) {
	case *virtv1.VirtualMachine:
		// Instance types are objects of their own: such a VM is checked without its sizes.
		referred := virtualmachine.Referred{Unknown: object.Spec.Instancetype != nil || object.Spec.Preference != nil}
		return append(supported.Unsupported(supported.VirtualMachine, raw), virtualmachine.Validate(object, referred, path)...), nil
	case *virtv1.VirtualMachineInstance:
		errs := supported.Unsupported(supported.VirtualMachineInstance, raw)
		defaults.Set(object, defaults.Cluster{})
		return append(errs, virtualmachineinstance.Validate(&object.Spec, path)...), nil
	case *virtv1.VirtualMachineInstanceReplicaSet:
		return append(supported.Unsupported(supported.ReplicaSet, raw), replicaset.Validate(object, defaults.Cluster{})...), nil
	case *virtv1.KubeVirt:
		return kubevirtconfig.Validate(raw), nil
	case *poolv1.VirtualMachinePool:
		errs := append(supported.Unsupported(supported.Pool, raw), pool.Validate(object)...)
		vm := &virtv1.VirtualMachine{Spec: object.Spec.VirtualMachineTemplate.Spec}
		referred := virtualmachine.Referred{Unknown: vm.Spec.Instancetype != nil || vm.Spec.Preference != nil}
		return append(errs, virtualmachine.Validate(vm, referred, pool.TemplatePath())...), nil
	case *cdiv1.DataVolume:
		return append(supported.Unsupported(supported.DataVolume, raw), datavolume.Validate(&object.Spec, path)...), nil
	case *snapshotv1.VirtualMachineSnapshot:
		return append(supported.Unsupported(supported.Snapshot, raw), snapshot.Validate(object)...), nil
	case *snapshotv1.VirtualMachineRestore:
		return append(supported.Unsupported(supported.Restore, raw), restore.Validate(object, nil)...), nil
	case *exportv1.VirtualMachineExport:
		return append(supported.Unsupported(supported.Export, raw), export.Validate(object)...), nil
	case *clonev1.VirtualMachineClone:
		return append(supported.Unsupported(supported.Clone, raw), vmclone.Validate(object)...), nil
	case *vmtemplatev1beta1.VirtualMachineTemplateRequest:
		return templaterequest.Validate(object), nil
	case *backupv1.VirtualMachineBackup:
		return backup.Validate(object, raw), nil
	case *backupv1.VirtualMachineBackupTracker:
		return backup.ValidateTracker(object, raw), nil
	case *templatev1.Template:
		return process(object)
	}
	return nil, nil
}

// process fills in a template's parameters and admits what comes of it.
func process(tmpl *templatev1.Template) (field.ErrorList, error) {
	values := map[string]string{}
	for _, p := range tmpl.Parameters {
		if p.Required && p.Generate == "" {
			values[p.Name] = "x-" + strings.ToLower(p.Name)
		}
	}
	out, err := template.Process(tmpl, values)
	if err != nil {
		return nil, err
	}
	var errs field.ErrorList
	for _, made := range out.Objects {
		text, err := yaml.Marshal(made.Object)
		if err != nil {
			return nil, err
		}
		object, err := decode(string(text))
		if err != nil {
			return nil, err
		}
		more, err := admit(object, string(text))
		if err != nil {
			return nil, err
		}
		errs = append(errs, more...)
	}
	return errs, nil
}

// Every relative link leads to a file, and one into a page to a heading of it.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(read(t, page), -1) {
			to := filepath.Join(filepath.Dir(page), found[1])
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if found[2] != "" && !headings(read(t, to))[found[2]] {
				t.Errorf("%s: %s has no heading %s", page, found[1], found[2])
			}
		}
		own := headings(read(t, page))
		for _, found := range regexp.MustCompile(`\]\((#[^)]+)\)`).FindAllStringSubmatch(read(t, page), -1) {
			if !own[found[1]] {
				t.Errorf("%s: no heading %s", page, found[1])
			}
		}
	}
}

// headings are the anchors of a page's headings, as code hosts make them.
func headings(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors["#"+strings.ReplaceAll(name, " ", "-")] = true
	}
	return anchors
}

// The parameter tables of the pipelines' pages are those of the pipelines.
func TestPipelinePagesNameEveryParameter(t *testing.T) {
	paths, err := filepath.Glob("../pipelines/*/pipeline.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("pipelines: %v, %v", paths, err)
	}
	for _, path := range paths {
		var pipeline struct {
			Spec struct {
				Params  []struct{ Name, Description string }
				Results []struct{ Name, Description string }
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, path)), &pipeline); err != nil {
			t.Fatal(err)
		}
		page := strings.ReplaceAll(read(t, filepath.Join(filepath.Dir(path), "README.md")), "`", "")
		for _, p := range append(pipeline.Spec.Params, pipeline.Spec.Results...) {
			row := regexp.MustCompile(`(?m)^\| ` + p.Name + ` \|.*` + regexp.QuoteMeta(strings.ReplaceAll(p.Description, "`", "")) + ` \|$`)
			if !row.MatchString(page) {
				t.Errorf("%s: the page has no row for %s: %s", path, p.Name, p.Description)
			}
		}
	}
}
