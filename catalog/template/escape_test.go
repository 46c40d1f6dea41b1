package template

import (
	"encoding/json"
	"testing"

	templatev1 "github.com/openshift/api/template/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// What is escaped comes out of a template as it was, whatever parameters there are.
func TestEscapedIsGivenBack(t *testing.T) {
	for _, text := range []string{
		"", "plain $HOME $(id) $1 $$ ${} ${a-b} ${#x} ${x:-y}", "${HOME}", "a ${HOME}/${NAME} b", "$${HOME}", "$$${HOME}", "$$$${NAME}",
		"${{NAME}}", "$${{NAME}}", "$$${{NAME}}", "a ${{NAME}} b", "a $${{NAME}} b", "${${NAME}}", "${{${NAME}}}", "${NAME}${{NAME}}$${NAME}", "#!/bin/sh\necho ${NAME}\n",
	} {
		object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": text, "key " + text: []any{text, true}}}
		raw, err := json.Marshal(Escape(object))
		if err != nil {
			t.Fatal(err)
		}
		tmpl := &templatev1.Template{Parameters: []templatev1.Parameter{{Name: "NAME", Value: "7"}}, Objects: []runtime.RawExtension{{Raw: raw}}}
		out, err := Process(tmpl, nil)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		want, _ := json.Marshal(object)
		if got, _ := json.Marshal(out.Objects[0].Object); string(got) != string(want) || len(out.Unused) != 1 {
			t.Errorf("of %s came %s", want, got)
		}
	}
}
