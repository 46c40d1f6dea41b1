package admission

import (
	"slices"
	"strings"
	"testing"
)

// baseSet is a replica set that is admitted; cases change it.
const baseSet = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceReplicaSet
metadata: {name: x, namespace: prod}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {creationTimestamp: null, labels: {app: web, tier: front}, annotations: {a: b}}
    spec:
      domain:
        memory: {guest: 1Gi}
        devices: {disks: [{name: root, disk: {bus: virtio}}]}
      volumes: [{name: root, containerDisk: {image: img}}]
`

func TestBadReplicaSetsAreRefusedWithThePath(t *testing.T) {
	for name, c := range map[string]struct {
		old, replacement string
		want             []string
	}{
		"nothing wrong":                 {"replicas: 3", "replicas: 0", nil},
		"paused":                        {"replicas: 3", "paused: true", nil},
		"names to begin with":           {"labels: {app", "generateName: web-, labels: {app", nil},
		"a selector of expressions":     {"matchLabels: {app: web}", "matchExpressions: [{key: app, operator: In, values: [web, shop]}]", nil},
		"less than none":                {"replicas: 3", "replicas: -1", []string{"spec.replicas"}},
		"labels of others":              {"selector: {matchLabels: {app: web}}", "selector: {matchLabels: {app: shop}}", []string{"spec.selector"}},
		"a template without labels":     {", labels: {app: web, tier: front}", "", []string{"spec.selector"}},
		"a selector of everything":      {"selector: {matchLabels: {app: web}}", "selector: {}", []string{"spec.selector"}},
		"no selector":                   {"selector: {matchLabels: {app: web}}", "paused: false", []string{"spec.selector"}},
		"a selector that says nothing":  {"matchLabels: {app: web}", "matchExpressions: [{key: app, operator: Near}]", []string{"spec.selector"}},
		"a guest without memory":        {"memory: {guest: 1Gi}", "cpu: {cores: 1}", []string{"spec.template.spec.domain.memory.guest"}},
		"a field not acted on":          {"disks:", "gpus: [{name: g, deviceName: d}], disks:", []string{"spec.template.spec.domain.devices.gpus[0].deviceName", "spec.template.spec.domain.devices.gpus[0].name"}},
		"sidecars":                      {"annotations: {a: b}", "annotations: {hooks.kubevirt.io/hookSidecars: '[]'}", []string{"spec.template.metadata.annotations[hooks.kubevirt.io/hookSidecars]"}},
		"a namespace for the instances": {"labels: {app", "namespace: other, labels: {app", []string{"spec.template.metadata.namespace"}},
		"finalizers for the instances":  {"labels: {app", "finalizers: [a/b], labels: {app", []string{"spec.template.metadata.finalizers[0]"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(baseSet, c.old, c.replacement, 1)
			if text == baseSet {
				t.Fatal("the case changes nothing")
			}
			for _, old := range [][]byte{nil, []byte(baseSet)} {
				if got := refusedPaths(ask(t, "/virtualmachineinstancereplicasets-validate", []byte(text), old, "jane")); !slices.Equal(got, c.want) {
					t.Errorf("refused %v, want %v", got, c.want)
				}
			}
		})
	}
	without := []byte(`{spec: {selector: {matchLabels: {app: web}}}}`)
	response := ask(t, "/virtualmachineinstancereplicasets-validate", without, nil, "jane")
	if got := refusedPaths(response); !slices.Equal(got, []string{"spec.template"}) || !strings.Contains(response.Result.Message, "missing virtual machine template.") {
		t.Errorf("a set without a template: refused %v", got)
	}
}

// One that is on its way out may lose its finalizers, whatever it says.
func TestADeletedReplicaSetIsLetGo(t *testing.T) {
	text := strings.Replace(baseSet, "namespace: prod", "namespace: prod, deletionTimestamp: '2026-11-20T12:00:00Z'", 1)
	text = strings.Replace(text, "replicas: 3", "replicas: -3", 1)
	if response := ask(t, "/virtualmachineinstancereplicasets-validate", []byte(text), []byte(baseSet), "jane"); !response.Allowed {
		t.Error(response.Result.Message)
	}
}
