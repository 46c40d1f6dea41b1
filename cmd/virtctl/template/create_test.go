package template

import (
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestCreate(t *testing.T) {
	for name, line := range map[string]string{
		"request":       "create --vm-name golden",
		"request-named": "create --vm-name golden --vm-namespace builds --name debian",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, v1beta1)
			out, _, err := run(t, c, "", line)
			if err != nil || !regexp.MustCompile(`^virtualmachinetemplaterequest\.template\.kubevirt\.io/golden-[a-z0-9]+ created\n$`).MatchString(out) {
				t.Fatalf("%v\n%s", err, out)
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(requests)
			if err := c.List(t.Context(), list); err != nil || len(list.Items) != 1 {
				t.Fatalf("%v, %d requests", err, len(list.Items))
			}
			made := list.Items[0]
			made.SetName("")
			made.SetResourceVersion("")
			data, err := yaml.Marshal(made.Object)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, "testdata/"+name+".yaml", "# virtctl template "+line+"\n"+string(data))
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	refused(t, unreachable, "create", `required flag(s) "vm-name" not set`)
	refused(t, unreachable, "create golden", `unknown command "golden" for "virtctl template create"`)
	refused(t, unreachable, "create --vm-name golden", "no cluster")
	refused(t, newCluster(t, ""), "create --vm-name golden", "this cluster makes no templates of VirtualMachines: it does not serve VirtualMachineTemplateRequest (template.kubevirt.io/v1beta1); write a template by hand")
}
