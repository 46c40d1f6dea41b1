package virtualmachineexport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/kubevirtconfig"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// input is a case's file: an export, and its volumes.
type input struct {
	Export  exportv1.VirtualMachineExport `json:"export"`
	Volumes []Volume                      `json:"volumes"`
	TLS     *virtv1.TLSConfiguration      `json:"tls"`
	Pull    []corev1.LocalObjectReference `json:"pull"`
}

// began is when the exports of tests were made.
var began = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

func TestServers(t *testing.T) {
	cases, err := filepath.Glob(filepath.Join("testdata", "*.in.yaml"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, name := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".in.yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var in input
			if err := yaml.UnmarshalStrict(data, &in); err != nil {
				t.Fatal(err)
			}
			in.Export.UID, in.Export.CreationTimestamp = "0000-export", metav1.NewTime(began)
			known, definition := identity{Certificate: "certificate", Authority: "authority\n"}, ""
			if in.Export.Spec.Source.Kind != KindClaim {
				definition = "definition"
			}
			var got []byte
			for _, object := range []any{
				buildPod(podInput{
					Export: &in.Export, Volumes: in.Volumes, Image: "registry.local/slipway:test", Known: known, Definition: definition,
					TLS: tlspolicy.OfKubeVirt(in.TLS), PullSecrets: in.Pull,
					Resources: kubevirtconfig.ContainerResources(&virtv1.KubeVirt{}, virtv1.VMExport),
				}),
				buildService(&in.Export, known),
			} {
				one, err := yaml.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				got = append(append(got, "---\n"...), one...)
			}
			fixture.Golden(t, strings.TrimSuffix(name, ".in.yaml")+".out.yaml", got)
		})
	}
}

// The definition of a VM has its disks imported from the export: from templates and claims alike. What is not exported stays.
func TestTheDefinitionImportsTheDisks(t *testing.T) {
	vm := fixture.VM("shop", "web", fixture.Template("web-root", fixture.DataVolume("shop", "web-root", "1Gi")), fixture.Claim("data", "web-data"),
		fixture.Claim("left-out", "other"), fixture.CloudInit("#cloud-config"))
	vm.UID, vm.Finalizers = "0000-vm", []string{"f"}
	vm.Labels, vm.Annotations = map[string]string{"team": "a"}, map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"}
	vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{InferFromVolume: "web-root"}
	vm.Status.InstancetypeRef = &virtv1.InstancetypeStatusRef{Name: "u1.small", Kind: "virtualmachineclusterinstancetype"}
	spec := &vm.Spec.Template.Spec
	spec.Volumes = append(spec.Volumes, virtv1.Volume{Name: "dumps", VolumeSource: virtv1.VolumeSource{MemoryDump: &virtv1.MemoryDumpVolumeSource{
		PersistentVolumeClaimVolumeSource: virtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "dumps"}},
	}}})
	block := corev1.PersistentVolumeBlock
	claim := func(size string, mode *corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaimSpec {
		return &corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: mode, StorageClassName: new("fast"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}
	}
	export := &exportv1.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-disks"}}
	data, err := encodeManifest(manifestInput{Export: export, VM: vm, Authority: "authority\n", Volumes: []Volume{
		{Name: "web-root", Claim: "web-root", Disk: true, was: claim("1Gi", nil)},
		{Name: "web-data", Claim: "web-data", Disk: true, Block: true, was: claim("2Gi", &block)},
		{Name: "dumps", Claim: "dumps", was: claim("3Gi", nil)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.JSONToYAML(data)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Golden(t, filepath.Join("testdata", "definition.out.yaml"), got)
	if vm.Spec.Instancetype.Name != "" || len(spec.Volumes) != 5 || vm.Spec.DataVolumeTemplates[0].Spec.Source.HTTP != nil {
		t.Error("the VM itself was changed")
	}
}
