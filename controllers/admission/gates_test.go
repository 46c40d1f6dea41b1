package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

// cluster is one whose KubeVirt object opens gates; nil cannot be asked.
type cluster struct {
	empty
	gates []string
	// reads counts how often the KubeVirt object is read; nil counts nothing.
	reads *int
}

func (g cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	kubevirts, ok := list.(*virtv1.KubeVirtList)
	if !ok {
		return nil
	}
	if g.reads != nil {
		*g.reads++
	}
	if g.gates == nil {
		return errors.New("connection refused")
	}
	kv := virtv1.KubeVirt{}
	kv.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{FeatureGates: g.gates}
	kubevirts.Items = []virtv1.KubeVirt{kv}
	return nil
}

func (g cluster) ask(t *testing.T, path, object, old string) admission.Response {
	t.Helper()
	raw := func(text string) runtime.RawExtension {
		content, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: content}
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: "prod", Name: "x", Kind: metav1.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"},
		Operation: admissionv1.Create, Object: raw(object),
	}}
	if old != "" {
		request.Operation, request.OldObject = admissionv1.Update, raw(old)
	}
	return Handlers(g, nil, "slipway", nil)[path].Handle(t.Context(), request)
}

func TestWhatIsBehindAGate(t *testing.T) {
	devices := func(more string) string { return strings.Replace(base, "          disks:", more+"          disks:", 1) }
	sockets := devices("          autoattachVSOCK: true\n")
	port := devices("          downwardMetrics: {}\n")
	disk := strings.NewReplacer("disks: [", "disks: [{name: metrics, disk: {bus: virtio}}, ", "volumes: [", "volumes: [{name: metrics, downwardMetrics: {}}, ").Replace(base)
	instance := `{metadata: {name: x}, spec: {domain: {devices: {autoattachVSOCK: true}, memory: {guest: 1Gi}}}}`
	const spec = "spec.template.spec."
	const machines, instances = "/virtualmachines-validate", "/virtualmachineinstances-validate"
	for name, c := range map[string]struct {
		gates             []string
		path, object, old string
		want              []string
	}{
		"nothing is behind one":            {gates: []string{}, path: machines, object: base},
		"sockets that are left out":        {gates: []string{}, path: machines, object: devices("          autoattachVSOCK: false\n")},
		"sockets":                          {gates: []string{"VSOCK"}, path: machines, object: sockets},
		"sockets, of another gate":         {gates: []string{"DownwardMetrics"}, path: machines, object: sockets, want: []string{spec + "domain.devices.autoattachVSOCK"}},
		"sockets that were there before":   {gates: []string{}, path: machines, object: sockets, old: sockets},
		"sockets that come late":           {gates: []string{}, path: machines, object: sockets, old: base, want: []string{spec + "domain.devices.autoattachVSOCK"}},
		"sockets of an instance":           {gates: []string{}, path: instances, object: instance, want: []string{"spec.domain.devices.autoattachVSOCK"}},
		"sockets of an instance, open":     {gates: []string{"VSOCK"}, path: instances, object: instance},
		"a port of metrics":                {gates: []string{"VSOCK"}, path: machines, object: port, want: []string{spec + "domain.devices.downwardMetrics"}},
		"a port of metrics, open":          {gates: []string{"DownwardMetrics"}, path: machines, object: port},
		"a port of metrics that was there": {gates: []string{}, path: machines, object: port, old: port},
		"a disk of metrics":                {gates: []string{}, path: machines, object: disk, want: []string{spec + "volumes[0].downwardMetrics"}},
		"a disk of metrics, open":          {gates: []string{"DownwardMetrics"}, path: machines, object: disk},
		"a disk of metrics that was there": {gates: []string{}, path: machines, object: disk, old: disk},
		"a disk of metrics that could be written": {gates: []string{"DownwardMetrics"}, path: machines, object: strings.Replace(disk, "metrics, disk: {bus: virtio}", "metrics, disk: {}", 1),
			want: []string{spec + "domain.devices.disks[0].disk.bus"}},
	} {
		t.Run(name, func(t *testing.T) {
			response := cluster{gates: c.gates}.ask(t, c.path, c.object, c.old)
			if got := refusedPaths(response); response.Allowed != (c.want == nil) || !slices.Equal(got, c.want) {
				t.Errorf("allowed %v, refused %v, want %v: %v", response.Allowed, got, c.want, response.Result)
			}
		})
	}
	if response := (cluster{}).ask(t, machines, sockets, ""); response.Allowed || response.Result.Code != 500 {
		t.Errorf("a cluster that does not answer admits it, or says %v", response.Result)
	}
}

func TestTheKubeVirtObjectIsReadOnceForEachAnswer(t *testing.T) {
	gatedVM := strings.Replace(base, "          disks:", "          autoattachVSOCK: true\n          downwardMetrics: {}\n          disks:", 1)
	instance := `{metadata: {name: x}, spec: {domain: {devices: {autoattachVSOCK: true, downwardMetrics: {}}, memory: {guest: 1Gi}}}}`
	for name, c := range map[string]struct {
		path, object, old string
		want              int
	}{
		"a new VM is completed":             {path: "/virtualmachines-mutate", object: gatedVM, want: 1},
		"a new VM is judged":                {path: "/virtualmachines-validate", object: gatedVM, want: 1},
		"a VM that changes is not given":    {path: "/virtualmachines-mutate", object: gatedVM, old: base},
		"a VM that changes is judged":       {path: "/virtualmachines-validate", object: gatedVM, old: base, want: 1},
		"a VM that stays what it is is not": {path: "/virtualmachines-validate", object: gatedVM, old: gatedVM},
		"a new instance is judged":          {path: "/virtualmachineinstances-validate", object: instance, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			cluster{gates: []string{}, reads: &reads}.ask(t, c.path, c.object, c.old)
			if reads != c.want {
				t.Errorf("read %d times, want %d", reads, c.want)
			}
		})
	}
}
