//go:build integration

package subresource_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	templateverbs "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/verbs"
)

// ofTemplate is the path of the template "debian" in a version.
func ofTemplate(version string) string {
	return "/apis/subresources.template.kubevirt.io/" + version + "/namespaces/default/virtualmachinetemplates/debian/"
}

// processes follows rolesSayWhoMay, which binds the viewer's role.
func processes(t *testing.T, c *cluster) {
	t.Helper()
	template := &vmtemplatev1beta1.VirtualMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "debian"}}
	template.Spec = vmtemplatev1beta1.VirtualMachineTemplateSpec{
		Message: "${NAME} is made.", Parameters: []vmtemplatev1beta1.Parameter{{Name: "NAME", Required: true}, {Name: "CORES", Value: "1"}},
		VirtualMachine: &runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"${NAME}"},"spec":{"runStrategy":"Halted",
			"template":{"spec":{"domain":{"cpu":{"cores":"${{CORES}}"},"devices":{}}}}}}`)},
	}
	must(t, c.Create(t.Context(), template))
	must(t, c.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "templates-alone"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{templateverbs.Group}, Resources: []string{"virtualmachinetemplates/process", "virtualmachinetemplates/create"}, Verbs: []string{"create"}},
		{APIGroups: []string{"subresources.kubevirt.io"}, Resources: []string{"virtualmachines/start"}, Verbs: []string{"update"}}, // by which may sees that it is known
	}}))
	viewer, cook, maker := c.User(t, "viewer"), c.may(t, "cook", "templates-alone", "update", "start"), c.may(t, "maker", "kubevirt.io:edit", "update", "start")
	wants := func(as *rest.Config, path, body string, wantCode int, wantWords string) {
		t.Helper()
		if code, said := c.ask(t, as, http.MethodPost, path, body); code != wantCode || !strings.Contains(said, wantWords) {
			t.Errorf("%s %s: got %d %s, want %d with %q", path, body, code, said, wantCode, wantWords)
		}
	}
	const named = `{"parameters":{"NAME":"of-template","CORES":"2"}}`
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		at := ofTemplate(version)
		wants(cook, at+"process", named, http.StatusOK, `"apiVersion":"subresources.template.kubevirt.io/`+version+`"`)
		wants(cook, at+"create?dryRun=All", named, http.StatusOK, `"uid"`)
	}
	at := ofTemplate("v1beta1")
	wants(viewer, at+"process", named, http.StatusForbidden, "virtualmachinetemplates/process")
	wants(maker, at+"process", `{"parameters":{"NAME":"a","COLOUR":"red"}}`, http.StatusConflict, "it has no parameter COLOUR")
	wants(maker, at+"process", "", http.StatusUnprocessableEntity, "required params are missing values: NAME")
	wants(maker, at+"create?dryRun=All", named, http.StatusOK, `"uid"`)
	wants(maker, strings.Replace(at, "debian", "nowhere", 1)+"process", "", http.StatusNotFound, `virtualmachinetemplates.template.kubevirt.io \"nowhere\" not found`)
	wants(maker, at+"create", `{"parameters":{"NAME":"No Name"}}`, http.StatusUnprocessableEntity, `VirtualMachine.kubevirt.io \"No Name\" is invalid`)
	vm := &virtv1.VirtualMachine{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "of-template"}, vm); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("an attempt has made the VM: %v", err)
	}
	c.makesByKubectl(t, maker, named)
	wants(maker, at+"create", named, http.StatusConflict, `virtualmachines.kubevirt.io \"of-template\" already exists`)
}

// makesByKubectl has kubectl make a VM of the template.
func (c *cluster) makesByKubectl(t *testing.T, as *rest.Config, named string) {
	t.Helper()
	said, failed := c.kubectl(t, as, "create --raw "+ofTemplate("v1alpha1")+"create -f -", named)
	got := &templateverbs.ProcessedVirtualMachineTemplate{}
	if err := json.Unmarshal([]byte(said), got); err != nil || failed {
		t.Fatalf("kubectl says %s, %v", said, err)
	}
	vm := &virtv1.VirtualMachine{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "of-template"}, vm))
	if got.Message != "of-template is made." || got.TemplateRef.Name != "debian" || got.VirtualMachine.UID != vm.UID || vm.Spec.Template.Spec.Domain.CPU.Cores != 2 {
		t.Errorf("got %s, and the VM %+v", said, vm)
	}
	// The group has no objects: a template by its short word is the stored one.
	if said, failed := c.kubectl(t, as, "get virtualmachinetemplates -o name", ""); failed || strings.TrimSpace(said) != "virtualmachinetemplate.template.kubevirt.io/debian" {
		t.Errorf("kubectl get says %s", said)
	}
}
