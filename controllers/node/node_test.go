package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/slipway-vm/slipway/internal/names"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func with(heartbeat string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}}
	node.Annotations = map[string]string{virtv1.VirtHandlerHeartbeat: heartbeat}
	return node
}

func TestSilence(t *testing.T) {
	for name, c := range map[string]struct {
		heartbeat string
		want      time.Duration
	}{
		"the field's form, a quoted time": {`"2026-11-20T11:58:00Z"`, 2 * time.Minute},
		"a bare time":                     {"2026-11-20T11:58:00Z", 2 * time.Minute},
		"never":                           {"", time.Hour},
		"nonsense":                        {"soon", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Silence(with(c.heartbeat), noon); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestOnlyChangesThatConcernVirtualMachinesPass(t *testing.T) {
	ready := func(status corev1.ConditionStatus) *corev1.Node {
		node := with(`"2026-11-20T11:58:00Z"`)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		return node
	}
	beat := ready(corev1.ConditionTrue)
	beat.Annotations[virtv1.VirtHandlerHeartbeat] = `"2026-11-20T11:59:00Z"`
	open := ready(corev1.ConditionTrue)
	open.Labels = map[string]string{virtv1.NodeSchedulable: "true"}
	offering := func(device corev1.ResourceName) *corev1.Node {
		node := ready(corev1.ConditionTrue)
		node.Status.Capacity = corev1.ResourceList{device: resource.MustParse("10")}
		return node
	}
	for name, c := range map[string]struct {
		after *corev1.Node
		want  bool
	}{
		"a heartbeat":              {beat, false},
		"a node with KVM":          {offering(names.DeviceKVM), true},
		"with a faster network":    {offering(names.DeviceVhostNet), true},
		"with sockets to guests":   {offering(names.DeviceVhostVSOCK), true},
		"with more memory":         {offering(corev1.ResourceMemory), false},
		"a node that is not ready": {ready(corev1.ConditionUnknown), true},
		"a node that opens":        {open, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Changed().Update(event.UpdateEvent{ObjectOld: ready(corev1.ConditionTrue), ObjectNew: c.after}); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
