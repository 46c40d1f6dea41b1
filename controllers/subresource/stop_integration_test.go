//go:build integration

package subresource_test

import (
	"net/http"
	"testing"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refusesStops has the API server refuse the second half of a stop: that the VM does not run any more.
func refusesStops(t *testing.T, c *cluster) {
	t.Helper()
	vm := c.vm(t, "kept", virtv1.RunStrategyAlways)
	vmi := c.vmi(t, vm)
	c.keep(t, vm)
	for name, before := range map[string]*int64{"one of its own": new(int64(30)), "none of its own": nil} {
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
		vmi.Spec.TerminationGracePeriodSeconds = before
		must(t, c.Update(t.Context(), vmi))
		c.wants(t, c.Config, http.MethodPut, "virtualmachines/kept/stop", `{"gracePeriod":5}`, http.StatusInternalServerError, "it is to stay")
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
		after := vmi.Spec.TerminationGracePeriodSeconds
		if (after == nil) != (before == nil) || after != nil && *after != *before {
			t.Errorf("a guest with %s, whose stop was refused, has a grace period of %v", name, after)
		}
	}
	c.wants(t, c.Config, http.MethodPut, "virtualmachines/kept/stop", `{"gracePeriod":-1}`, http.StatusBadRequest, "gracePeriod has to be greater or equal to 0")
}

// keep has the API server refuse that vm is halted.
func (c *cluster) keep(t *testing.T, vm *virtv1.VirtualMachine) {
	t.Helper()
	rule := admissionregistrationv1.NamedRuleWithOperations{ResourceNames: []string{vm.Name}}
	rule.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	rule.Rule = admissionregistrationv1.Rule{APIGroups: []string{"kubevirt.io"}, APIVersions: []string{"*"}, Resources: []string{"virtualmachines"}}
	must(t, c.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: vm.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule}},
			Validations:      []admissionregistrationv1.Validation{{Expression: "object.spec.runStrategy != 'Halted'", Message: "it is to stay"}},
		},
	}))
	must(t, c.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: vm.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: vm.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}))
	halted := []byte(`{"spec":{"runStrategy":"Halted"}}`)
	gomega.NewWithT(t).Eventually(func() error {
		return c.Patch(t.Context(), vm.DeepCopy(), client.RawPatch("application/merge-patch+json", halted), client.DryRunAll) //nolint:wrapcheck // the test looks at the API server's own words
	}, bound, "200ms").Should(gomega.MatchError(gomega.ContainSubstring("it is to stay")), "the policy counts")
}
