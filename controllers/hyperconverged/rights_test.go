package hyperconverged

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

// Whatever a component knows of Secrets, it knows by their names: none can read those of others.
func TestSecretsAreReadByNameAlone(t *testing.T) {
	objects, err := plan(&hcov1.HyperConverged{}, infra{}, testOptions().Values())
	if err != nil {
		t.Fatal(err)
	}
	read := []string{"get", "list", "watch", rbacv1.VerbAll}
	seen := 0
	for _, object := range objects {
		if kind := object.GetKind(); kind != "Role" && kind != "ClusterRole" {
			continue
		}
		role := &rbacv1.ClusterRole{} // whose rules are those of a Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			named := func(all []string, wanted ...string) bool {
				return slices.ContainsFunc(all, func(one string) bool { return slices.Contains(wanted, one) })
			}
			if !named(rule.APIGroups, "", rbacv1.APIGroupAll) || !named(rule.Resources, "secrets", rbacv1.ResourceAll) || !named(rule.Verbs, read...) {
				continue
			}
			seen++
			if len(rule.ResourceNames) == 0 {
				t.Errorf("%s %s may %v every Secret", object.GetKind(), role.Name, rule.Verbs)
			}
		}
	}
	if seen == 0 {
		t.Error("no rule is of Secrets: the test looks at nothing")
	}
}
