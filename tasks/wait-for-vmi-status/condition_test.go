package waitforvmistatus

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
)

// sample is an instance that runs, is ready, and cannot be migrated.
func sample(t *testing.T) map[string]any {
	t.Helper()
	vmi := &virtv1.VirtualMachineInstance{Status: virtv1.VirtualMachineInstanceStatus{
		Phase: virtv1.Running, NodeName: "node1",
		Conditions: []virtv1.VirtualMachineInstanceCondition{
			{Type: "Ready", Status: "True"},
			{Type: "LiveMigratable", Status: "False", Reason: "DisksNotLiveMigratable", Message: "it says: no"},
		},
		Interfaces: []virtv1.VirtualMachineInstanceNetworkInterface{{Name: "default", IP: "10.0.0.1"}},
	}}
	vmi.Name = "web"
	vmi.Spec.Domain.CPU = &virtv1.CPU{Cores: 2}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(vmi)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestConditions(t *testing.T) {
	for text, want := range map[string]bool{
		// the field's grammar
		"status.phase == Running":                           true,
		"status.phase=Running":                              true,
		"status.phase == Succeeded":                         false,
		"status.phase in (Succeeded, Running)":              true,
		"status.phase notin (Succeeded, Failed)":            true,
		"status.phase == Running, status.nodeName == node1": true,
		"status.phase == Running, status.nodeName == node2": false,
		"status.phase in (A, B), status.phase == B":         false,
		"status.phase != Failed":                            true,
		"!status.reason":                                    true,
		"status.reason":                                     false,
		"status.reason != x":                                true,
		"status.reason notin (x)":                           true,
		"metadata.name == web":                              true,
		"spec.domain.cpu.cores == 2":                        true,
		"spec.domain.cpu.cores > 1":                         true,
		"":                                                  false,
		"  ":                                                false,
		// JSONPath
		`jsonpath:{.status.phase}==Running`:                                                       true,
		`jsonpath:{.status.phase}=Running`:                                                        true,
		`jsonpath: {.status.phase} == "Running"`:                                                  true,
		`jsonpath:{.status.phase}!=Running`:                                                       false,
		`jsonpath:{.status.phase}!=Failed`:                                                        true,
		`jsonpath:{.status.reason}`:                                                               false,
		`jsonpath:{.status.reason}!=x`:                                                            true,
		`jsonpath:{.status.nodeName}`:                                                             true,
		`jsonpath:{.status.conditions[?(@.type=="Ready")].status}==True`:                          true,
		`jsonpath:{.status.conditions[?(@.type=="Paused")].status}==True`:                         false,
		`jsonpath:{.status.conditions[?(@.type=="Paused")].status}!=True`:                         true,
		`jsonpath:{.status.conditions[?(@.type=="LiveMigratable")].message}=='it says: no'`:       true,
		`jsonpath:{.status.conditions[?(@.reason=="}")].status}`:                                  false,
		`jsonpath:{.status.conditions[*].type}==LiveMigratable`:                                   true,
		`jsonpath:{.status.interfaces[5].ipAddress}==10.0.0.1`:                                    false,
		`jsonpath:{.status.interfaces[0].ipAddress}==10.0.0.1`:                                    true,
		`jsonpath:{.status.migrationState.completed}==true`:                                       false,
		`jsonpath:{.status.migrationState.failed}!=true`:                                          true,
		`cel:status.phase == "Running"`:                                                           true,
		`cel: self.status.phase == "Running" && metadata.name == "web"`:                           true,
		`cel:status.conditions.exists(c, c.type == "Ready" && c.status == "True")`:                true,
		`cel:status.conditions.exists(c, c.type == "Paused")`:                                     false,
		`cel:status.reason == "x"`:                                                                false,
		`cel:has(status.reason)`:                                                                  false,
		`cel:!has(status.reason)`:                                                                 true,
		`cel:status.?reason.orValue("none") == "none"`:                                            true,
		`cel:status.interfaces[3].ipAddress == "x"`:                                               false,
		`cel:spec.domain.cpu.cores >= 2 && status.interfaces[0].ipAddress.startsWith("10.")`:      true,
		`cel:status.conditions.filter(c, c.status == "False").all(c, c.type == "LiveMigratable")`: true,
		`cel:status.nodeName in ["node1", "node2"]`:                                               true,
	} {
		c, err := parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, err := holds(c, sample(t)); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestBadConditions(t *testing.T) {
	for text, want := range map[string]string{
		"status.phase ==== x":                        "could not parse condition",
		`status.conditions[?(@.type=="Ready")] == x`: "could not parse condition",
		"status.phase == it's":                       "could not parse condition",
		"test.....test":                              "invalid condition: cannot parse jsonpath",
		"jsonpath:.status.phase":                     "write {.path.to.field}",
		"jsonpath:{.status.phase":                    "write {.path.to.field}",
		"jsonpath:{.status[}":                        "invalid condition: cannot parse jsonpath",
		"jsonpath:{.status.phase} in (A)":            "follows the braces",
		"invalid#$%^$&":                              "could not parse condition",
		"cel:status.phase ==":                        "could not parse condition",
		"cel:state.phase == 'x'":                     "undeclared reference to 'state'",
		"cel:1 + 1":                                  "it must give true or false",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"cel:status.phase": "it must give true or false",
		`cel:status.conditions.all(a, status.conditions.all(b, status.conditions.all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, [1,2,3,4,5,6,7,8,9].all(g, [1,2,3,4,5,6,7,8,9].all(h, [1,2,3,4,5,6,7,8,9].all(i, true)))))))))`: "cost limit",
		"cel:status.phase + 1 > 2": "no such overload",
	} {
		c, err := parse(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if _, err := holds(c, sample(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
