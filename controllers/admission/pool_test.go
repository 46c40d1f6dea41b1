package admission

import (
	"slices"
	"strings"
	"testing"
)

// basePool is a pool that is admitted; cases change it.
const basePool = `
apiVersion: pool.kubevirt.io/v1beta1
kind: VirtualMachinePool
metadata: {name: x, namespace: prod}
spec:
  replicas: 3
  maxUnavailable: 1
  selector: {matchLabels: {app: web}}
  scaleInStrategy: {proactive: {statePreservation: Offline, selectionPolicy: {sortPolicy: DescendingOrder}}}
  updateStrategy: {proactive: {selectionPolicy: {sortPolicy: Oldest}}}
  nameGeneration: {appendIndexToSecretRefs: true}
  virtualMachineTemplate:
    metadata: {creationTimestamp: null, labels: {app: web}, annotations: {a: b}}
    spec:
      runStrategy: Always
      dataVolumeTemplates: [{metadata: {name: root}, spec: {source: {blank: {}}, storage: {resources: {requests: {storage: 1Gi}}}}}]
      template:
        metadata: {labels: {app: web}}
        spec:
          domain:
            memory: {guest: 1Gi}
            devices: {disks: [{name: root, disk: {bus: virtio}}]}
          volumes: [{name: root, dataVolume: {name: root}}]
`

func TestBadPoolsAreRefusedWithThePath(t *testing.T) {
	const template = "spec.virtualMachineTemplate.spec."
	for name, c := range map[string]struct {
		old, replacement string
		want             []string
	}{
		"nothing wrong":            {"replicas: 3", "replicas: 0", nil},
		"paused":                   {"replicas: 3", "paused: true", nil},
		"a part that may stop":     {"maxUnavailable: 1", "maxUnavailable: 25%", nil},
		"opportunistic":            {"{proactive: {selectionPolicy: {sortPolicy: Oldest}}}", "{opportunistic: {}}", nil},
		"unmanaged":                {"{proactive: {selectionPolicy: {sortPolicy: Oldest}}}", "{unmanaged: {}}", nil},
		"opportunistic in number":  {"proactive: {statePreservation: Offline, selectionPolicy: {sortPolicy: DescendingOrder}}", "opportunistic: {}", nil},
		"less than none":           {"replicas: 3", "replicas: -1", []string{"spec.replicas"}},
		"a part of nothing":        {"maxUnavailable: 1", "maxUnavailable: some", []string{"spec.maxUnavailable"}},
		"labels of others":         {"selector: {matchLabels: {app: web}}", "selector: {matchLabels: {app: shop}}", []string{"spec.selector"}},
		"a selector of everything": {"selector: {matchLabels: {app: web}}", "selector: {}", []string{"spec.selector"}},
		"two strategies":           {"updateStrategy: {", "updateStrategy: {unmanaged: {}, ", []string{"spec.updateStrategy"}},
		"memory that is kept":      {"Offline", "Online", []string{"spec.scaleInStrategy.proactive.statePreservation"}},
		"autohealing":              {"replicas: 3", "autohealing: {startUpFailureThreshold: 3, minFailingToStartDuration: 2m}", nil},
		"autohealing of the well":  {"replicas: 3", "autohealing: {startUpFailureThreshold: 0, minFailingToStartDuration: -2m}", []string{"spec.autohealing.startUpFailureThreshold", "spec.autohealing.minFailingToStartDuration"}},
		"disks that outlive VMs":   {"proactive: {statePreservation: Offline, selectionPolicy: {sortPolicy: DescendingOrder}}", "opportunistic: {statePreservation: Offline}", nil},
		"memory that outlives VMs": {"proactive: {statePreservation: Offline, selectionPolicy: {sortPolicy: DescendingOrder}}", "opportunistic: {statePreservation: Online}", []string{"spec.scaleInStrategy.opportunistic.statePreservation"}},
		"VMs by the node":          {"sortPolicy: Oldest", "selectors: {nodeSelectorRequirementMatcher: [{key: a, operator: Exists}, {key: b, operator: Gt, values: ['3']}]}", nil},
		"VMs by no node": {"sortPolicy: DescendingOrder", "selectors: {nodeSelectorRequirementMatcher: [{key: a, operator: In}, {key: a, operator: Near, values: [b]}, {key: a, operator: Lt, values: [b]}]}", []string{
			"spec.scaleInStrategy.proactive.selectionPolicy.selectors.nodeSelectorRequirementMatcher[0]", "spec.scaleInStrategy.proactive.selectionPolicy.selectors.nodeSelectorRequirementMatcher[1]",
			"spec.scaleInStrategy.proactive.selectionPolicy.selectors.nodeSelectorRequirementMatcher[2]",
		}},
		"VMs by labels":          {"sortPolicy: Oldest", "selectors: {labelSelector: {matchLabels: {a: b}}}", nil},
		"a name for the VMs":     {"labels: {app: web}, annotations", "name: other, labels: {app: web}, annotations", []string{"spec.virtualMachineTemplate.metadata.name"}},
		"a guest without memory": {"memory: {guest: 1Gi}", "cpu: {cores: 1}", []string{template + "template.spec.domain.memory.guest"}},
		"no run strategy":        {"      runStrategy: Always\n", "", []string{template + "runStrategy"}},
		"a disk that nobody has": {"dataVolume: {name: root}", "containerDisk: {image: img}", []string{template + "dataVolumeTemplates[0]"}},
		"sidecars":               {"        metadata: {labels: {app: web}}", "        metadata: {labels: {app: web}, annotations: {hooks.kubevirt.io/hookSidecars: '[]'}}", []string{template + "template.metadata.annotations[hooks.kubevirt.io/hookSidecars]"}},
		"a field not acted on":   {"disks:", "gpus: [{name: g, deviceName: d}], disks:", []string{template + "template.spec.domain.devices.gpus[0].deviceName", template + "template.spec.domain.devices.gpus[0].name"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(basePool, c.old, c.replacement, 1)
			if text == basePool {
				t.Fatal("the case changes nothing")
			}
			for _, old := range [][]byte{nil, []byte(basePool)} {
				if got := refusedPaths(ask(t, "/virtualmachinepools-validate", []byte(text), old, "jane")); !slices.Equal(got, c.want) {
					t.Errorf("refused %v, want %v", got, c.want)
				}
			}
		})
	}
	without := []byte(`{spec: {selector: {matchLabels: {app: web}}}}`)
	response := ask(t, "/virtualmachinepools-validate", without, nil, "jane")
	if got := refusedPaths(response); !slices.Equal(got, []string{"spec.virtualMachineTemplate"}) {
		t.Errorf("a pool without a template: refused %v", got)
	}
}

// One that is on its way out may lose its finalizers, whatever it says.
func TestADeletedPoolIsLetGo(t *testing.T) {
	text := strings.Replace(basePool, "namespace: prod", "namespace: prod, deletionTimestamp: '2026-11-20T12:00:00Z'", 1)
	text = strings.Replace(text, "replicas: 3", "replicas: -3", 1)
	if response := ask(t, "/virtualmachinepools-validate", []byte(text), []byte(basePool), "jane"); !response.Allowed {
		t.Error(response.Result.Message)
	}
}
