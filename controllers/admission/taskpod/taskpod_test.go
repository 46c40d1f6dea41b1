package taskpod

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// base is a pod as Tekton makes it, in short.
const base = `
metadata: {name: run-pod}
spec:
  initContainers:
  - {name: prepare, image: x, volumeMounts: [{name: bin, mountPath: /tekton/bin}]}
  containers:
  - name: step-disk-virt-customize
    image: x
    resources: {requests: {cpu: 10m}}
    volumeMounts:
    - {name: targetpvc, mountPath: /mnt/targetpvc}
    - {name: scratch, mountPath: /var/tmp/slipway}
  volumes:
  - {name: targetpvc, persistentVolumeClaim: {claimName: disk}}
`

func podOf(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// fitted applies what Fit returns as the API server does.
func fitted(t *testing.T, pod *corev1.Pod, facts Facts) *corev1.Pod {
	t.Helper()
	before, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	operations, err := json.Marshal(Fit(pod, facts))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		t.Fatalf("%v\n%s", err, operations)
	}
	changed := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(after, changed); err != nil {
		t.Fatal(err)
	}
	return changed
}

func TestABlockClaimIsADevice(t *testing.T) {
	step := fitted(t, podOf(t, base), Facts{Block: true}).Spec.Containers[0]
	if len(step.VolumeMounts) != 1 || step.VolumeMounts[0].Name != "scratch" {
		t.Errorf("mounts %v", step.VolumeMounts)
	}
	if len(step.VolumeDevices) != 1 || step.VolumeDevices[0] != (corev1.VolumeDevice{Name: "targetpvc", DevicePath: "/dev/targetpvc"}) {
		t.Errorf("devices %v", step.VolumeDevices)
	}
	step = fitted(t, podOf(t, base), Facts{}).Spec.Containers[0]
	if len(step.VolumeMounts) != 2 || len(step.VolumeDevices) != 0 {
		t.Errorf("a file system's mounts %v, devices %v", step.VolumeMounts, step.VolumeDevices)
	}
}

func TestTheDiskBelongsToQEMUsGroup(t *testing.T) {
	for text, want := range map[string]int64{
		base: 107,
		base + "  securityContext: {runAsNonRoot: true}\n": 107,
		base + "  securityContext: {fsGroup: 1000}\n":      1000,
	} {
		pod := fitted(t, podOf(t, text), Facts{})
		if got := pod.Spec.SecurityContext.FSGroup; got == nil || *got != want {
			t.Errorf("fsGroup %v, want %d", got, want)
		}
	}
}

func TestKVMIsAskedForOnceWhereItIs(t *testing.T) {
	pod := fitted(t, podOf(t, base), Facts{KVM: true})
	for i := range 2 {
		resources := pod.Spec.Containers[0].Resources
		for what, list := range map[string]corev1.ResourceList{"limits": resources.Limits, "requests": resources.Requests} {
			if count := list["devices.kubevirt.io/kvm"]; count.Value() != 1 {
				t.Errorf("pass %d: %s %v", i+1, what, list)
			}
		}
		if cpu := resources.Requests[corev1.ResourceCPU]; cpu.String() != "10m" {
			t.Errorf("requests %v", resources.Requests)
		}
		pod = fitted(t, pod, Facts{KVM: true})
	}
	if len(pod.Spec.InitContainers[0].Resources.Limits) != 0 {
		t.Error("an init container has KVM")
	}
	other := podOf(t, base)
	other.Spec.Containers[0].Name = "step-disk-uploader"
	if limits := fitted(t, other, Facts{KVM: true}).Spec.Containers[0].Resources.Limits; len(limits) != 0 {
		t.Errorf("a task that needs no KVM has %v", limits)
	}
}

func TestNodesOfferKVM(t *testing.T) {
	node := func(devices string, change ...func(*corev1.Node)) corev1.Node {
		var n corev1.Node
		if devices != "" {
			n.Status.Allocatable = corev1.ResourceList{"devices.kubevirt.io/kvm": resource.MustParse(devices)}
		}
		for _, c := range change {
			c(&n)
		}
		return n
	}
	tainted := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Effect: corev1.TaintEffectNoSchedule}} }
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	for name, c := range map[string]struct {
		nodes []corev1.Node
		want  bool
	}{
		"no nodes":                    {nil, false},
		"all":                         {[]corev1.Node{node("1k"), node("110")}, true},
		"one has none":                {[]corev1.Node{node("1k"), node("")}, false},
		"one has lost its own":        {[]corev1.Node{node("1k"), node("0")}, false},
		"only closed ones have none":  {[]corev1.Node{node("1k"), node("", tainted), node("", cordoned)}, true},
		"only closed ones have a KVM": {[]corev1.Node{node("1k", tainted)}, false},
	} {
		if got := OfferKVM(c.nodes); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestPodsWithoutTheClaimAreLeftAlone(t *testing.T) {
	if _, ok := Claim(&corev1.Pod{}); ok {
		t.Error("a claim was found in an empty pod")
	}
	if claim, ok := Claim(podOf(t, base)); !ok || claim != "disk" {
		t.Errorf("claim %q, %t", claim, ok)
	}
}
