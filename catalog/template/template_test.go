package template

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	templatev1 "github.com/openshift/api/template/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func vmTemplate(object string, parameters ...templatev1.Parameter) *templatev1.Template {
	return &templatev1.Template{
		ObjectMeta: metav1.ObjectMeta{Name: "t"},
		Parameters: parameters,
		Objects:    []runtime.RawExtension{{Raw: []byte(object)}},
		Message:    "made ${NAME}",
	}
}

func TestProcessFillsEveryPlace(t *testing.T) {
	tmpl := vmTemplate(`{"apiVersion":"v1","kind":"ConfigMap",
		"metadata":{"name":"${NAME}","namespace":"fixed","labels":{"own":"kept","both":"lost"}},
		"data":{"${NAME}-key":"a ${NAME} and ${NAME}"},"cores":"${{CORES}}","big":9007199254740993,
		"yes":"${{YES}}","none":"${{NONE}}","word":"${{WORD}}","part":"a${{CORES}}"}`,
		templatev1.Parameter{Name: "NAME", Required: true},
		templatev1.Parameter{Name: "CORES", Value: "2"},
		templatev1.Parameter{Name: "YES", Value: "true"},
		templatev1.Parameter{Name: "NONE"},
		templatev1.Parameter{Name: "WORD", Value: "two words"},
		templatev1.Parameter{Name: "LONELY", Value: "x"})
	tmpl.ObjectLabels = map[string]string{"both": "template's", "from": "${NAME}"}
	out, err := Process(tmpl, map[string]string{"NAME": "${CORES}"})
	if err != nil {
		t.Fatal(err)
	}
	object := out.Objects[0]
	want := map[string]any{
		"metadata.name": "${CORES}", "metadata.labels.own": "kept", "metadata.labels.both": "template's", "metadata.labels.from": "${CORES}",
		"data.${CORES}-key": "a ${CORES} and ${CORES}", "cores": int64(2), "big": int64(9007199254740993),
		"yes": true, "none": "", "word": "two words", "part": "a${{CORES}}",
	}
	for path, value := range want {
		got, _, _ := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
		if got != value {
			t.Errorf("%s = %#v, want %#v", path, got, value)
		}
	}
	if object.GetNamespace() != "" {
		t.Errorf("the fixed namespace %q stayed", object.GetNamespace())
	}
	if out.Message != "made ${CORES}" || len(out.Unused) != 1 || out.Unused[0] != "LONELY" {
		t.Errorf("message %q, unused %v", out.Message, out.Unused)
	}
}

func TestProcessRefuses(t *testing.T) {
	name := templatev1.Parameter{Name: "NAME", Required: true}
	cases := map[string]struct {
		object string
		values map[string]string
		params []templatev1.Parameter
		want   string
	}{
		"a required parameter without a value": {`{"apiVersion":"v1","kind":"X"}`, nil, []templatev1.Parameter{name}, "required params are missing values: NAME"},
		"a value for no parameter":             {`{"apiVersion":"v1","kind":"X"}`, map[string]string{"NAME": "a", "ALIAS": "b"}, []templatev1.Parameter{name}, "no parameter ALIAS"},
		"a reference to no parameter":          {`{"apiVersion":"v1","kind":"X","a":["${HOME}"]}`, map[string]string{"NAME": "a"}, []templatev1.Parameter{name}, "X.a[0]: ${HOME} names no parameter; declare it, or write $${HOME} if the guest shall see ${HOME}"},
		"two keys that become one":             {`{"apiVersion":"v1","kind":"X","${NAME}":1,"a":2}`, map[string]string{"NAME": "a"}, []templatev1.Parameter{name}, "X: two keys become a"},
		"a whole reference to no parameter":    {`{"apiVersion":"v1","kind":"X","a":"${{CORES}}"}`, map[string]string{"NAME": "a"}, []templatev1.Parameter{name}, "X.a: ${CORES} names no parameter"},
		"a parameter without a name":           {`{"apiVersion":"v1","kind":"X"}`, nil, []templatev1.Parameter{{Value: "a"}}, "parameters[0]: it has no name"},
		"an object without a kind":             {`{"apiVersion":"v1"}`, map[string]string{"NAME": "a"}, []templatev1.Parameter{name}, "kind are required"},
		"a parameter declared twice":           {`{"apiVersion":"v1","kind":"X"}`, map[string]string{"NAME": "a"}, []templatev1.Parameter{name, name}, "declared twice"},
		"an unknown generator":                 {`{"apiVersion":"v1","kind":"X"}`, nil, []templatev1.Parameter{{Name: "NAME", Generate: "uuid"}}, "not known"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tmpl := vmTemplate(c.object, c.params...)
			tmpl.Message = ""
			_, err := Process(tmpl, c.values)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want one with %q", err, c.want)
			}
		})
	}
	_, err := Process(vmTemplate(`{"apiVersion":"v1","kind":"X"}`, name), nil)
	if _, ok := errors.AsType[*MissingError](err); !ok {
		t.Fatalf("%v holds no MissingError", err)
	}
	_, err = Process(vmTemplate(`{"apiVersion":"v1","kind":"X"}`, name), map[string]string{"B": "1", "A": "2"})
	if undeclared, ok := errors.AsType[*UndeclaredError](err); !ok || undeclared.Error() != "it has no parameter A, B; it has NAME" {
		t.Fatalf("%v holds %v, want one that names A and B", err, undeclared)
	}
}

func TestGenerate(t *testing.T) {
	cases := map[string]string{
		"[a-z0-9]{16}":           `^[a-z0-9]{16}$`,
		"pw-[A-F]{4}-[\\d]{2}":   `^pw-[A-F]{4}-\d{2}$`,
		"[\\w]{255}":             `^\w{255}$`,
		"literal":                `^literal$`,
		"[\\A]{8}":               `^[[:punct:]]{8}$`,
		"[a-zA-Z_]{3}[.]{1}[x]1": `^[a-zA-Z_]{3}\.\[x\]1$`,
		"[\\a]{255}":             `^[a-zA-Z0-9]{255}$`,
		"[l-W]{255}":             `^[l-zA-W]{255}$`,
		"[a-Z]{255}":             `^[a-zA-Z]{255}$`,
	}
	for expression, pattern := range cases {
		got, err := Generate(expression)
		if err != nil || !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("%s made %q, %v; want %s", expression, got, err, pattern)
		}
	}
	for _, bad := range []string{"", "[a]{0}", "[a]{256}", "[a]{-1}", "[a-z]{eight}", "[a]{}", "[]{1}", "[z-a]{2}", "[9-a]{2}", "[!-z]{2}", "[\\q]{1}"} {
		if got, err := Generate(bad); err == nil {
			t.Errorf("%q made %q, want an error", bad, got)
		}
	}
}

// The range's ends are drawn too: 4096 draws of at most 62 characters miss one with a chance below 1e-28.
func TestGenerateDrawsBothEnds(t *testing.T) {
	for expression, want := range map[string]string{"[0-9]{64}": "0123456789", "[a-z]{64}": "az", "[A-Z]{64}": "AZ", "[a-zA-Z0-9]{64}": "azAZ09", "[b-b]{64}": "b", "[\\w]{64}": "azAZ09_", "[\\a]{64}": "azAZ09", "[\\d]{64}": "09", "[j-9]{64}": "jzAZ09", "[G-2]{64}": "GZ012"} {
		var all strings.Builder
		for range 64 {
			part, err := Generate(expression)
			if err != nil {
				t.Fatal(err)
			}
			all.WriteString(part)
		}
		for _, char := range want {
			if !strings.ContainsRune(all.String(), char) {
				t.Errorf("%s never drew %c in %d characters", expression, char, all.Len())
			}
		}
	}
}

// What shall reach the guest's shell is written with one more $.
func TestProcessEscapes(t *testing.T) {
	tmpl := vmTemplate(`{"apiVersion":"v1","kind":"ConfigMap","data":{
		"script":"cd $${HOME}; echo ${NAME} $NAME ${NAME:-x} $$","whole":"$${{NAME}}","twice":"$$${NAME}"}}`,
		templatev1.Parameter{Name: "NAME", Value: "vm"})
	out, err := Process(tmpl, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"script": "cd ${HOME}; echo vm $NAME ${NAME:-x} $$", "whole": "${{NAME}}", "twice": "$${NAME}"}
	for key, value := range want {
		if got := out.Objects[0].Object["data"].(map[string]any)[key]; got != value {
			t.Errorf("%s = %q, want %q", key, got, value)
		}
	}
}

func vmTemplateObject(version string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "template.kubevirt.io/" + version, "kind": "VirtualMachineTemplate",
		"metadata": map[string]any{"namespace": "ns", "name": "t", "labels": map[string]any{"a": "b"}}, "spec": spec,
	}}
}

func TestFromVirtualMachineTemplate(t *testing.T) {
	from := vmTemplateObject("v1beta1", map[string]any{
		"virtualMachine": map[string]any{"metadata": map[string]any{"name": "${NAME}"}, "spec": map[string]any{"cores": "${{CORES}}"}},
		"parameters": []any{
			map[string]any{"name": "NAME", "displayName": "Name", "generate": "expression", "from": "vm-[0-9]{4}", "required": true},
			map[string]any{"name": "CORES", "value": "2"},
		},
		"message": "made ${NAME}",
	})
	tmpl, err := FromVirtualMachineTemplate(from)
	if err != nil {
		t.Fatal(err)
	}
	if tmpl.Name != "t" || tmpl.Namespace != "ns" || tmpl.Labels["a"] != "b" {
		t.Errorf("metadata is %+v", tmpl.ObjectMeta)
	}
	out, err := Process(tmpl, nil)
	if err != nil {
		t.Fatal(err)
	}
	vm := out.Objects[0]
	if vm.GetAPIVersion() != "kubevirt.io/v1" || vm.GetKind() != "VirtualMachine" || !regexp.MustCompile(`^vm-\d{4}$`).MatchString(vm.GetName()) || out.Message != "made "+vm.GetName() {
		t.Errorf("got %+v, message %q", vm.Object, out.Message)
	}
	if cores, _, _ := unstructured.NestedInt64(vm.Object, "spec", "cores"); cores != 2 {
		t.Errorf("cores are %d", cores)
	}
	// As for the field's engine, it is a VirtualMachine whatever it says that it is.
	other, err := FromVirtualMachineTemplate(vmTemplateObject("v1alpha1", map[string]any{"virtualMachine": map[string]any{"apiVersion": "example.com/v1", "kind": "Other"}}))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(other.Objects[0].Raw); got != `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine"}` {
		t.Errorf("got %s", got)
	}
	for want, spec := range map[string]map[string]any{
		"spec.virtualMachine is required": {"parameters": []any{}},
		`unknown field "objects"`:         {"virtualMachine": map[string]any{}, "objects": []any{}},
	} {
		if _, err := FromVirtualMachineTemplate(vmTemplateObject("v1alpha1", spec)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", spec, err, want)
		}
	}
}
