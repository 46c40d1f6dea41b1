package hyperconverged

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func TestEmbeddedDefinitionsAreMarked(t *testing.T) {
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 13 {
		t.Fatalf("%d definitions are embedded, want all of the kinds that are served", len(all))
	}
	for _, d := range all {
		head := string(d.content[:600])
		if d.hash == "" || !strings.Contains(head, "name: "+d.name) || !strings.Contains(head, "app.kubernetes.io/managed-by: slipway") {
			t.Errorf("%s: its head lacks the hash, the name or the label:\n%s", d.name, head)
		}
	}
}

func TestDefinitionBeforeTheOperatorRunsConvertsThroughIt(t *testing.T) {
	definition, err := Definition("somewhere")
	if err != nil {
		t.Fatal(err)
	}
	spec := definition.Object["spec"].(map[string]any)
	conversion := spec["conversion"].(map[string]any)
	if conversion["strategy"] != "Webhook" {
		t.Errorf("strategy: got %v; an object of the older version would lose its spec", conversion["strategy"])
	}
}

// What clients and controllers rely on beyond what the Go types say.
func TestDefinitionsKeepWhatTheGoTypesDoNotSay(t *testing.T) {
	served := map[string]*apiextensionsv1.CustomResourceDefinition{}
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		parsed := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(d.content, parsed); err != nil {
			t.Fatal(err)
		}
		served[parsed.Spec.Names.Kind] = parsed
	}
	for kind, status := range map[string]bool{
		"VirtualMachine": true, "VirtualMachineInstance": false, "VirtualMachineInstanceReplicaSet": true, "VirtualMachinePool": true, "KubeVirt": true, "DataVolume": true, "DataSource": false, "CDI": true, "HyperConverged": true,
	} {
		for _, version := range served[kind].Spec.Versions {
			if got := version.Subresources != nil && version.Subresources.Status != nil; got != status {
				t.Errorf("%s %s: status subresource: got %v, want %v", kind, version.Name, got, status)
			}
			conditions := version.Schema.OpenAPIV3Schema.Properties["status"].Properties["conditions"]
			if conditions.XListType == nil || *conditions.XListType != "map" || !slices.Equal(conditions.XListMapKeys, []string{"type"}) {
				t.Errorf("%s %s: conditions are no map by type", kind, version.Name)
			}
		}
	}
	spec := served["VirtualMachine"].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	for what, schema := range map[string]apiextensionsv1.JSONSchemaProps{
		"the metadata of a VM's template":           spec.Properties["template"].Properties["metadata"],
		"the metadata of a replica set's template":  served["VirtualMachineInstanceReplicaSet"].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["template"].Properties["metadata"],
		"the metadata of a pool's template":         served["VirtualMachinePool"].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["virtualMachineTemplate"].Properties["metadata"],
		"the metadata of a VM's dataVolumeTemplate": spec.Properties["dataVolumeTemplates"].Items.Schema.Properties["metadata"],
		"an object of a Template":                   *served["Template"].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["objects"].Items.Schema,
	} {
		if schema.XPreserveUnknownFields == nil || !*schema.XPreserveUnknownFields {
			t.Errorf("%s would be pruned", what)
		}
	}
	instance := served["VirtualMachineInstance"].Spec
	if len(instance.Versions) != 2 || instance.Versions[0].Name != "v1" || !instance.Versions[0].Storage || instance.Versions[1].Name != "v1alpha3" {
		t.Errorf("versions of VirtualMachineInstance: %d", len(instance.Versions))
	}
	if got := instance.Names.ShortNames; !slices.Equal(got, []string{"vmi", "vmis"}) {
		t.Errorf("short names of VirtualMachineInstance: %v", got)
	}
}

// HorizontalPodAutoscalers and kubectl scale go by these paths.
func TestReplicaSetsAndPoolsAreScaled(t *testing.T) {
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	for name, short := range map[string][]string{
		"virtualmachineinstancereplicasets.kubevirt.io": {"vmirs", "vmirss"},
		"virtualmachinepools.pool.kubevirt.io":          {"vmpool", "vmpools"},
	} {
		found := slices.IndexFunc(all, func(d definition) bool { return d.name == name })
		if found < 0 {
			t.Fatalf("the definition of %s is missing", name)
		}
		parsed := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(all[found].content, parsed); err != nil {
			t.Fatal(err)
		}
		if got := parsed.Spec.Names.ShortNames; !slices.Equal(got, short) {
			t.Errorf("%s: short names: %v", name, got)
		}
		for _, version := range parsed.Spec.Versions {
			scale := version.Subresources.Scale
			if scale == nil || scale.SpecReplicasPath != ".spec.replicas" || scale.StatusReplicasPath != ".status.replicas" ||
				scale.LabelSelectorPath == nil || *scale.LabelSelectorPath != ".status.labelSelector" {
				t.Errorf("%s %s: scale is %+v", name, version.Name, scale)
			}
			if replicas := version.Schema.OpenAPIV3Schema.Properties["spec"].Properties["replicas"]; replicas.Default == nil || string(replicas.Default.Raw) != "1" {
				t.Errorf("%s %s: one that does not say how many has no scale", name, version.Name)
			}
		}
	}
}
