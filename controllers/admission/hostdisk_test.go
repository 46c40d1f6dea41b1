package admission

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

// gates is a cluster with nothing but a KubeVirt object that turns these gates on.
type gates []string

func (g gates) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	return empty{}.Get(ctx, key, obj, options...)
}

func (g gates) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if kubevirts, ok := list.(*virtv1.KubeVirtList); ok {
		kubevirts.Items = make([]virtv1.KubeVirt, 1)
		kubevirts.Items[0].Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{FeatureGates: g}
	}
	return nil
}

// askGated sends an object, as YAML, to the webhook at path of a cluster with these gates.
func askGated(t *testing.T, on gates, path, object, old string) admission.Response {
	t.Helper()
	raw := func(text string) runtime.RawExtension {
		content, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: content}
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "prod", Name: "x", Operation: admissionv1.Create, Object: raw(object)}}
	if old != "" {
		request.Operation, request.OldObject = admissionv1.Update, raw(old)
	}
	return Handlers(on, nil, "slipway", func() time.Time { return noon })[path].Handle(context.Background(), request)
}

// withHostDisk is the spec of a VMI, indented by so much.
func withHostDisk(indent, source string) string {
	const spec = `domain: {memory: {guest: 1Gi}, machine: {type: q35}, devices: {autoattachPodInterface: false, disks: [{name: root, disk: {bus: virtio}}]}}
volumes: [{name: root, hostDisk: SOURCE}]
`
	return indent + strings.ReplaceAll(strings.TrimSuffix(strings.Replace(spec, "SOURCE", source, 1), "\n"), "\n", "\n"+indent) + "\n"
}

func hostDiskVM(source string) string {
	return "spec:\n  runStrategy: Always\n  template:\n    spec:\n" + withHostDisk("      ", source)
}

func TestFilesOfTheNodeAreBehindTheirGate(t *testing.T) {
	const source, other = "{path: /data/vm.img, type: DiskOrCreate, capacity: 1Gi}", "{path: /data/other.img, type: Disk}"
	vmi := "spec:\n" + withHostDisk("  ", source)
	set := "spec:\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec:\n" + withHostDisk("      ", source)
	pool := "spec:\n  selector: {matchLabels: {a: b}}\n  virtualMachineTemplate:\n    metadata: {labels: {a: b}}\n    spec:\n" +
		"      runStrategy: Always\n      template:\n        metadata: {labels: {a: b}}\n        spec:\n" + withHostDisk("          ", source)
	for name, c := range map[string]struct {
		path, object, old, at string
	}{
		"a VMI":                      {"/virtualmachineinstances-validate", vmi, "", "spec.volumes[0].hostDisk"},
		"a VM":                       {"/virtualmachines-validate", hostDiskVM(source), "", "spec.template.spec.volumes[0].hostDisk"},
		"a VM that gets another one": {"/virtualmachines-validate", hostDiskVM(source), hostDiskVM(other), "spec.template.spec.volumes[0].hostDisk"},
		"a VM that had it":           {"/virtualmachines-validate", strings.Replace(hostDiskVM(source), "Always", "Halted", 1), hostDiskVM(source), ""},
		"a replica set":              {"/virtualmachineinstancereplicasets-validate", set, "", "spec.template.spec.volumes[0].hostDisk"},
		"a replica set that had it":  {"/virtualmachineinstancereplicasets-validate", set + "  replicas: 2\n", set, ""},
		"a pool":                     {"/virtualmachinepools-validate", pool, "", "spec.virtualMachineTemplate.spec.template.spec.volumes[0].hostDisk"},
	} {
		t.Run(name, func(t *testing.T) {
			if response := askGated(t, gates{"HostDisk"}, c.path, c.object, c.old); !response.Allowed {
				t.Errorf("the gate is on, and still: %v", response.Result)
			}
			response := askGated(t, gates{"Sidecar"}, c.path, c.object, c.old)
			if got := refusedPaths(response); !slices.Equal(got, wanted(c.at)) {
				t.Errorf("the gate is off; refused %v, want %q", got, c.at)
			}
			if said, err := json.Marshal(response.Result); c.at != "" && (err != nil || !strings.Contains(string(said), "HostDisk feature gate is not enabled")) {
				t.Errorf("it says %s, %v", said, err)
			}
		})
	}
}

func wanted(path string) []string {
	if path == "" {
		return nil
	}
	return []string{path}
}

func TestBadFilesOfTheNodeAreRefused(t *testing.T) {
	const at = "spec.template.spec.volumes[0].hostDisk."
	for name, c := range map[string]struct{ source, want string }{
		"one that is there":         {"{path: /data/vm.img, type: Disk}", ""},
		"one that may be made":      {"{path: /vm.img, type: DiskOrCreate}", ""},
		"no path":                   {"{path: '', type: Disk}", at + "path"},
		"a path from nowhere":       {"{path: vm.img, type: Disk}", at + "path"},
		"a path with a detour":      {"{path: /data/../etc/vm.img, type: Disk}", at + "path"},
		"a path of a folder":        {"{path: /data/, type: Disk}", at + "path"},
		"the root":                  {"{path: /, type: Disk}", at + "path"},
		"a path that is no text":    {`{path: "/data/a\nb", type: Disk}`, at + "path"},
		"a long name":               {"{path: /" + strings.Repeat("x", 256) + ", type: Disk}", at + "path"},
		"a type that is none":       {"{path: /vm.img, type: File}", at + "type"},
		"no type":                   {"{path: /vm.img, type: ''}", at + "type"},
		"a capacity of what is":     {"{path: /vm.img, type: Disk, capacity: 1Gi}", at + "capacity"},
		"a capacity below nothing":  {"{path: /vm.img, type: DiskOrCreate, capacity: -1}", at + "capacity"},
		"one that others see":       {"{path: /vm.img, type: DiskOrCreate, capacity: 1Gi, shared: true}", ""},
		"two sources in one volume": {"{path: /vm.img, type: Disk}, emptyDisk: {capacity: 1Gi}", strings.TrimSuffix(at, ".hostDisk.")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusedPaths(askGated(t, gates{"HostDisk"}, "/virtualmachines-validate", hostDiskVM(c.source), "")); !slices.Equal(got, wanted(c.want)) {
				t.Errorf("refused %v, want %q", got, c.want)
			}
		})
	}
}
