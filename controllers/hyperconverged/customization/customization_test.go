package customization

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// deployed are small components.
func deployed(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "deployed.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := render.Decode(content)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// programs have few flags.
func programs() Programs {
	return Programs{"virt-api": func() *pflag.FlagSet {
		flags := pflag.NewFlagSet("virt-api", pflag.ContinueOnError)
		flags.Int("verbosity", 1, "")
		flags.Int("port", 8443, "")
		flags.StringSlice("host", nil, "")
		flags.Bool("brief", false, "")
		return flags
	}}
}

func written(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	var out strings.Builder
	for _, object := range objects {
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + string(content))
	}
	return out.String()
}

func TestApply(t *testing.T) {
	for name, asked := range map[string]Customization{
		"json": {Patches: []Patch{
			{Kind: "deployment", Name: "Virt-API", Type: "json", Text: `[{"op":"test","path":"/spec/replicas","value":1},{"op":"add","path":"/spec/template/metadata/annotations","value":{"a":"b"}}]`},
			{Kind: "Service", Name: "virt-api", Type: "json", Text: `[{"op":"replace","path":"/spec/ports/0/port","value":8443}]`},
		}},
		"merge":     {Patches: []Patch{{Kind: "DaemonSet", Name: "*", Type: "merge", Text: `{"spec":{"template":{"spec":{"tolerations":null,"hostNetwork":true}}}}`}}},
		"strategic": {Patches: []Patch{{Kind: "Deployment", Name: "virt-api", Type: "strategic", Text: `{"spec":{"template":{"spec":{"containers":[{"name":"virt-api","resources":{"requests":{"memory":"123Mi"}},"env":[{"name":"A","value":"b"}]}]}}}}`}}},
		"everything-in-order": {Patches: []Patch{
			{Kind: "*", Name: "*", Type: "strategic", Text: `{"metadata":{"annotations":{"order":"first, and longer"}}}`},
			{Kind: "*", Name: "virt-api", Type: "merge", Text: `{"metadata":{"annotations":{"order":"second"}}}`},
		}},
		"flags": {Flags: []Flags{{Field: "api", Component: "virt-api", Values: map[string]string{"v": "5", "host": "api.example.com", "brief": ""}}}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := deployed(t)
			before := written(t, objects)
			made, errs := asked.Apply(objects, programs(), field.NewPath("c"))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if written(t, objects) != before {
				t.Error("the objects themselves were changed")
			}
			fixture.Golden(t, filepath.Join("testdata", name+".yaml"), []byte(written(t, made)))
		})
	}
}

func TestWhatDoesNotApplyIsNamed(t *testing.T) {
	api := func(kind, text string) Customization {
		return Customization{Patches: []Patch{{Kind: "Service", Name: "virt-api", Type: "merge", Text: `{}`}, {Kind: "Deployment", Name: "virt-api", Type: kind, Text: text}}}
	}
	flags := func(name, value string) Customization {
		return Customization{Flags: []Flags{{Field: "api", Component: "virt-api", Values: map[string]string{name: value}}}}
	}
	for name, c := range map[string]struct {
		asked Customization
		want  []string // words of the one error
	}{
		"no JSON":                {api("merge", `{"spec":`), []string{"c.patches[1].patch: Invalid value: it is not JSON"}},
		"no list":                {api("json", `{"spec":{}}`), []string{"c.patches[1].patch", "a list of operations"}},
		"a list":                 {api("strategic", `[]`), []string{"c.patches[1].patch", "a strategic patch is a part of the object"}},
		"another type":           {api("apply", `{}`), []string{`c.patches[1].type: Unsupported value: "apply"`, `"json", "merge", "strategic"`}},
		"a path that is not":     {api("json", `[{"op":"remove","path":"/spec/nothing"}]`), []string{"c.patches[1].patch", "Deployment virt-api", "/spec/nothing"}},
		"a test that fails":      {api("json", `[{"op":"test","path":"/spec/replicas","value":2}]`), []string{"c.patches[1].patch", "Deployment virt-api", "/spec/replicas"}},
		"an operation of none":   {api("json", `[{"op":"ruin","path":"/spec","value":"s3cret"}]`), []string{"c.patches[1].patch"}},
		"a field that is not":    {api("merge", `{"spec":{"template":{"spec":{"tolerance":1}}}}`), []string{"c.patches[1].patch", `unknown field "spec.template.spec.tolerance"`}},
		"a value of another":     {api("merge", `{"spec":{"replicas":"s3cret"}}`), []string{"c.patches[1].patch", "Deployment virt-api"}},
		"an item of no name":     {api("strategic", `{"spec":{"template":{"spec":{"containers":[{"env":[{"value":"s3cret"}]}]}}}}`), []string{"an item of a list has no name, by which the list is merged"}},
		"another name":           {api("merge", `{"metadata":{"name":"x"}}`), []string{"it changes metadata.name, by which"}},
		"another kind":           {api("json", `[{"op":"replace","path":"/kind","value":"Pod"}]`), []string{"it changes kind, by which"}},
		"other pods":             {api("merge", `{"spec":{"selector":{"matchLabels":{"a":"b"}}}}`), []string{"it changes spec.selector, by which"}},
		"labels of ours":         {api("merge", `{"metadata":{"labels":null}}`), []string{"it changes metadata.labels[slipway-vm.github.io/component], by which"}},
		"a status":               {api("merge", `{"status":{"replicas":1}}`), []string{"it changes status, by which"}},
		"nothing at all":         {api("json", `[{"op":"replace","path":"","value":null}]`), []string{"c.patches[1].patch"}},
		"all that there is":      {api("strategic", `{"$patch":"delete"}`), []string{"it changes apiVersion, kind"}},
		"copies without end":     {api("json", `[{"op":"add","path":"/metadata/annotations","value":{"a":"`+strings.Repeat("x", 1<<19)+`"}},`+strings.Repeat(`{"op":"copy","from":"/metadata/annotations","path":"/spec/b"},`, 2)+`{"op":"test","path":"/spec","value":1}]`), []string{"copy"}},
		"one that is not there":  {Customization{Patches: []Patch{{Kind: "Deployment", Name: "virt-operator", Type: "merge", Text: `{}`}}}, []string{`c.patches[0].resourceName: Unsupported value: "virt-operator": supported values: "virt-api"`}},
		"a kind that can not be": {Customization{Patches: []Patch{{Kind: "ValidatingWebhookConfiguration", Name: "*", Type: "merge", Text: `{}`}}}, []string{`c.patches[0].resourceType: Unsupported value`, `"DaemonSet", "Deployment", "Service", "*"`}},
		"a flag that is not":     {flags("depth", "5"), []string{`c.flags.api[depth]: Unsupported value: "depth": supported values: "brief", "host", "verbosity"`}},
		"a level that is none":   {flags("v", "much"), []string{"c.flags.api[v]: Invalid value"}},
		"a value that is none":   {flags("verbosity", "much"), []string{"c.flags.api[verbosity]: Invalid value"}},
		"no value":               {flags("verbosity", ""), []string{"c.flags.api[verbosity]: Invalid value"}},
		"a flag of the operator": {flags("port", "1"), []string{"c.flags.api[port]: Forbidden: the operator sets this flag itself; others are: brief, host, verbosity"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := deployed(t)
			before := written(t, objects)
			_, errs := c.asked.Apply(objects, programs(), field.NewPath("c"))
			if len(errs) != 1 {
				t.Fatalf("got %v, want one error", errs)
			}
			for _, words := range c.want {
				if !strings.Contains(errs[0].Error(), words) {
					t.Errorf("got %v, want %q", errs[0], words)
				}
			}
			if strings.Contains(errs[0].Error(), "s3cret") {
				t.Errorf("what the patch sets is told: %v", errs[0])
			}
			if written(t, objects) != before {
				t.Error("the objects themselves were changed")
			}
		})
	}
}

func TestBothObjectsAreRead(t *testing.T) {
	if !OfKubeVirt(nil).Empty() || !OfCDI(nil).Empty() || !OfKubeVirt(&virtv1.KubeVirt{}).Empty() || !OfCDI(&cdiv1.CDI{}).Empty() {
		t.Error("nothing is not nothing")
	}
	kubevirt, cdi := &virtv1.KubeVirt{}, &cdiv1.CDI{}
	kubevirt.Spec.CustomizeComponents = virtv1.CustomizeComponents{
		Patches: []virtv1.CustomizeComponentsPatch{{ResourceName: "a", ResourceType: "b", Patch: "c", Type: "d"}},
		Flags:   &virtv1.Flags{Handler: map[string]string{"e": "f"}},
	}
	cdi.Spec.CustomizeComponents = cdiv1.CustomizeComponents{
		Patches: []cdiv1.CustomizeComponentsPatch{{ResourceName: "a", ResourceType: "b", Patch: "c", Type: "d"}},
		Flags:   &cdiv1.Flags{UploadProxy: map[string]string{"e": "f"}},
	}
	want := Patch{Name: "a", Kind: "b", Text: "c", Type: "d"}
	for _, got := range []Customization{OfKubeVirt(kubevirt), OfCDI(cdi)} {
		if len(got.Patches) != 1 || got.Patches[0] != want || got.Flags[len(got.Flags)-1].Values["e"] != "f" || got.Empty() {
			t.Errorf("got %+v", got)
		}
	}
}
