package kubevirtconfig

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

func TestContainersThatThereAreHaveWhatIsNamed(t *testing.T) {
	kubevirt := &virtv1.KubeVirt{}
	kubevirt.Spec.Configuration.SupportContainerResources = []virtv1.SupportContainerResources{{
		Type: virtv1.VMExport, Resources: virtv1.ResourceRequirementsWithoutClaims{Limits: amounts("2", "1Gi")},
	}}
	want := map[virtv1.SupportContainerType]corev1.ResourceRequirements{
		virtv1.VMExport:          {Requests: amounts("100m", "64Mi"), Limits: amounts("2", "1Gi")},
		virtv1.HotplugAttachment: {Requests: amounts("10m", "2M"), Limits: amounts("100m", "80M")},
	}
	for range 2 { // what is named changes no default
		for kind, resources := range want {
			if got := ContainerResources(kubevirt, kind); !equal(got.Requests, resources.Requests) || !equal(got.Limits, resources.Limits) {
				t.Errorf("%s: got %+v, want %+v", kind, got, resources)
			}
		}
	}
	if got := ContainerResources(&virtv1.KubeVirt{}, virtv1.VMExport); !equal(got.Limits, amounts("1", "512Mi")) {
		t.Errorf("where nothing is named: %+v", got)
	}
}

func equal(a, b corev1.ResourceList) bool {
	return len(a) == len(b) && a.Cpu().Cmp(*b.Cpu()) == 0 && a.Memory().Cmp(*b.Memory()) == 0
}

func TestContainersThatThereAreNotAreRefused(t *testing.T) {
	const at = "spec.configuration.supportContainerResources[0]."
	for name, c := range map[string]struct {
		said string
		want []string
	}{
		"both": {said: `{"type":"hotplug-disk","resources":{"requests":{"cpu":"50m","memory":"32Mi"},"limits":{"cpu":"50m","memory":"64Mi"}}},` +
			`{"type":"vmexport","resources":{"limits":{"memory":"1Gi"}}}`},
		"nothing of one": {said: `{"type":"vmexport","resources":{}}`},
		"one twice": {
			said: `{"type":"vmexport","resources":{}},{"type":"vmexport","resources":{"limits":{"cpu":"2"}}}`,
			want: []string{`supportContainerResources[1].type: Duplicate value: "vmexport"`},
		},
		"container disks": {said: `{"type":"container-disk","resources":{"limits":{"cpu":"1"}}}`, want: []string{
			at + `type: Invalid value: "container-disk": container disks have no container beside the guest`}},
		"file systems": {said: `{"type":"virtiofs","resources":{}}`, want: []string{at + `type: Invalid value: "virtiofs": file systems are served in the guest's own container`}},
		"sidecars":     {said: `{"type":"sidecar","resources":{"requests":{"cpu":"1"}}}`, want: []string{at + `type: Invalid value: "sidecar": virtual machines have no sidecars; remove it`}},
		"logs":         {said: `{"type":"guest-console-log","resources":{}}`, want: []string{at + `type: Invalid value: "guest-console-log": the launcher keeps the log of the serial console itself; remove it`}},
		"no type":      {said: `{"type":"x","resources":{}}`, want: []string{at + `type: Unsupported value: "x": supported values: "hotplug-disk", "vmexport"`}},
		"other resources": {said: `{"type":"vmexport","resources":{"requests":{"ephemeral-storage":"1Gi"}}}`, want: []string{
			at + `resources.requests: Unsupported value: "ephemeral-storage": supported values: "cpu", "memory"`}},
		"nothing to ask for": {said: `{"type":"vmexport","resources":{"requests":{"cpu":"0"},"limits":{"memory":"-1"}}}`, want: []string{
			at + `resources.requests[cpu]: Invalid value: "0": it is more than 0`, at + `resources.limits[memory]: Invalid value: "-1": it is more than 0`}},
		"less than is asked for": {said: `{"type":"vmexport","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1500m"}}}`, want: []string{
			at + `resources.limits[cpu]: Invalid value: "1500m": it is less than the request of 2`}},
		"more than may be had when nothing is said": {said: `{"type":"hotplug-disk","resources":{"requests":{"memory":"128Mi"}}}`, want: []string{
			at + `resources.limits[memory]: Invalid value: "80M": it is less than the request of 128Mi; write both`}},
		"what is no container": {said: `{"type":"vmexport","resources":{"claims":[{"name":"x"}]}}`, want: []string{at + `resources.claims[0].name: Forbidden`}},
	} {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{}
			if err := json.Unmarshal([]byte(`{"spec":{"configuration":{"supportContainerResources":[`+c.said+`]}}}`), &object); err != nil {
				t.Fatal(err)
			}
			errs := Validate(object)
			if len(errs) != len(c.want) {
				t.Fatalf("got %v, want %q", errs, c.want)
			}
			for i, err := range errs {
				if !strings.Contains(err.Error(), c.want[i]) {
					t.Errorf("got %v, want %q", err, c.want[i])
				}
			}
		})
	}
}
