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
		"metadata":{"name":"${NAME}","namespace":"fixed","labels":{"own":"kept"}},
		"data":{"${NAME}-key":"a ${NAME} and ${NAME}"},"cores":"${{CORES}}","big":9007199254740993}`,
		templatev1.Parameter{Name: "NAME", Required: true},
		templatev1.Parameter{Name: "CORES", Value: "2"},
		templatev1.Parameter{Name: "LONELY", Value: "x"})
	tmpl.ObjectLabels = map[string]string{"own": "lost", "from": "${NAME}"}
	out, err := Process(tmpl, map[string]string{"NAME": "${CORES}"})
	if err != nil {
		t.Fatal(err)
	}
	object := out.Objects[0]
	want := map[string]any{
		"metadata.name": "${CORES}", "metadata.labels.own": "kept", "metadata.labels.from": "${CORES}",
		"data.${CORES}-key": "a ${CORES} and ${CORES}", "cores": int64(2), "big": int64(9007199254740993),
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
		"a reference to no parameter":          {`{"apiVersion":"v1","kind":"X","a":["${HOME}"]}`, map[string]string{"NAME": "a"}, []templatev1.Parameter{name}, "X.a[0]: ${HOME} names no parameter"},
		"a word where JSON is due":             {`{"apiVersion":"v1","kind":"X","a":"${{NAME}}"}`, map[string]string{"NAME": "two"}, []templatev1.Parameter{name}, "takes a number"},
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
}

func TestGenerate(t *testing.T) {
	cases := map[string]string{
		"[a-z0-9]{16}":           `^[a-z0-9]{16}$`,
		"pw-[A-F]{4}-[\\d]{2}":   `^pw-[A-F]{4}-\d{2}$`,
		"[\\w]{255}":             `^\w{255}$`,
		"literal":                `^literal$`,
		"[\\A]{8}":               `^[[:punct:]]{8}$`,
		"[a-zA-Z_]{3}[.]{1}[x]1": `^[a-zA-Z_]{3}\.\[x\]1$`,
	}
	for expression, pattern := range cases {
		got, err := Generate(expression)
		if err != nil || !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("%s made %q, %v; want %s", expression, got, err, pattern)
		}
	}
	for _, bad := range []string{"", "[a]{0}", "[a]{256}", "[]{1}", "[z-a]{2}", "[\\q]{1}"} {
		if got, err := Generate(bad); err == nil {
			t.Errorf("%q made %q, want an error", bad, got)
		}
	}
}

// The range's ends are drawn too: 4096 draws of ten digits miss one with a chance below 1e-180.
func TestGenerateDrawsBothEnds(t *testing.T) {
	var all strings.Builder
	for range 64 {
		part, err := Generate("[0-9]{64}")
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(part)
	}
	if s := all.String(); !strings.Contains(s, "0") || !strings.Contains(s, "9") {
		t.Fatalf("no 0 or no 9 in %d digits", len(s))
	}
}
