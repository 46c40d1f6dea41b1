package virtualmachineinstance

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
)

func TestWhatNoProcessorCanBeIsNamed(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Spec.Domain.CPU = &virtv1.CPU{Model: "Penryn", Features: []virtv1.CPUFeature{
		{Name: "vmx"}, {Name: "aes", Policy: "require"}, {Name: "hle", Policy: "disable"}, {Name: "rtm", Policy: "optional"},
	}}
	node := func(labels ...string) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
		for _, label := range labels {
			n.Labels[label] = "true"
		}
		return n
	}
	model, vmx, aes := virtv1.CPUModelLabel+"Penryn", virtv1.CPUFeatureLabel+"vmx", virtv1.CPUFeatureLabel+"aes"
	for name, c := range map[string]struct {
		nodes []corev1.Node
		want  string
	}{
		"no node":          {want: "can have: feature aes, feature vmx, model Penryn;"},
		"one has all":      {nodes: []corev1.Node{node(), node(model, vmx, aes)}},
		"one lacks two":    {nodes: []corev1.Node{node(aes)}, want: "can have: feature vmx, model Penryn;"},
		"no one has all":   {nodes: []corev1.Node{node(model, vmx), node(aes)}}, // the scheduler's own words tell
		"the host's model": {nodes: []corev1.Node{node(virtv1.HostModelCPULabel+"Penryn", vmx, aes)}, want: "can have: model Penryn;"},
	} {
		t.Run(name, func(t *testing.T) {
			got := lackingProcessor(pod.ProcessorLabels(vmi), c.nodes)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	for _, model := range []string{"", virtv1.CPUModeHostModel, virtv1.CPUModeHostPassthrough} {
		vmi.Spec.Domain.CPU = &virtv1.CPU{Model: model}
		if labels := pod.ProcessorLabels(vmi); len(labels) > 0 {
			t.Errorf("model %q asks for %v", model, labels)
		}
	}
}
