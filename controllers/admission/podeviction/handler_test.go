package podeviction

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
)

func instance(strategy virtv1.EvictionStrategy) *virtv1.VirtualMachineInstance {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: "1"}}
	if strategy != "" {
		vmi.Spec.EvictionStrategy = &strategy
	}
	vmi.Status.Phase, vmi.Status.NodeName = virtv1.Running, "node-1"
	return vmi
}

func podOf(vmi *virtv1.VirtualMachineInstance, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: "virt-launcher-web-x", Labels: map[string]string{virtv1.AppLabel: app},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, virtv1.VirtualMachineInstanceGroupVersionKind)},
		},
		Spec: corev1.PodSpec{NodeName: "node-1"},
	}
}

func TestHandle(t *testing.T) {
	for name, c := range map[string]struct {
		strategy, cluster virtv1.EvictionStrategy
		change            func(*virtv1.VirtualMachineInstance, *corev1.Pod)
		// wantDenied is in the message of a refusal; empty when the eviction passes.
		wantDenied string
		wantEvent  bool
		wantMarked string
	}{
		"no strategy":                                  {},
		"the strategy None":                            {strategy: virtv1.EvictionStrategyNone, cluster: virtv1.EvictionStrategyLiveMigrate},
		"LiveMigrateIfPossible, which is not":          {strategy: virtv1.EvictionStrategyLiveMigrateIfPossible},
		"LiveMigrate, which is not possible":           {strategy: virtv1.EvictionStrategyLiveMigrate, wantDenied: "VMI web is configured with an eviction strategy but is not live-migratable; ", wantEvent: true},
		"LiveMigrate as the cluster's":                 {cluster: virtv1.EvictionStrategyLiveMigrate, wantDenied: "stop the virtual machine", wantEvent: true},
		"External":                                     {strategy: virtv1.EvictionStrategyExternal, wantDenied: `Eviction triggered evacuation of VMI "prod/web"`, wantMarked: "node-1"},
		"External, asked again":                        {strategy: virtv1.EvictionStrategyExternal, change: func(vmi *virtv1.VirtualMachineInstance, _ *corev1.Pod) { vmi.Status.EvacuationNodeName = "node-1" }, wantDenied: `Evacuation in progress: Eviction triggered evacuation of VMI "prod/web"`, wantMarked: "node-1"},
		"LiveMigrate of a guest that ended":            {strategy: virtv1.EvictionStrategyLiveMigrate, change: func(vmi *virtv1.VirtualMachineInstance, _ *corev1.Pod) { vmi.Status.Phase = virtv1.Succeeded }},
		"LiveMigrate of a pod that ended":              {strategy: virtv1.EvictionStrategyLiveMigrate, change: func(_ *virtv1.VirtualMachineInstance, p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"the pod of an earlier VMI of the name":        {strategy: virtv1.EvictionStrategyLiveMigrate, change: func(_ *virtv1.VirtualMachineInstance, p *corev1.Pod) { p.OwnerReferences[0].UID = "0" }},
		"a pod of somebody else with a name like ours": {strategy: virtv1.EvictionStrategyLiveMigrate, change: func(_ *virtv1.VirtualMachineInstance, p *corev1.Pod) { p.OwnerReferences = nil }},
		"the pod of a volume that came later":          {change: func(_ *virtv1.VirtualMachineInstance, p *corev1.Pod) { p.Labels[virtv1.AppLabel] = names.AppAttachment }, wantDenied: "cannot evict hotplug pod: virt-launcher-web-x associated with running vmi: web in namespace prod"},
		"a pod that only makes a claim bind":           {strategy: virtv1.EvictionStrategyLiveMigrate, change: func(_ *virtv1.VirtualMachineInstance, p *corev1.Pod) { p.Labels = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(c.strategy)
			evicted := podOf(vmi, "virt-launcher")
			if c.change != nil {
				c.change(vmi, evicted)
			}
			kv := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"}}
			if c.cluster != "" {
				kv.Spec.Configuration.EvictionStrategy = &c.cluster
			}
			store := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(vmi, evicted, kv).Build()
			told := events.NewFakeRecorder(1)
			response := (&Webhook{Reader: store, Client: store, Events: told}).Handle(t.Context(), request(evicted.Name, `{}`))
			judge(t, response, c.wantDenied)
			if got := len(told.Events) == 1; got != c.wantEvent {
				t.Errorf("an event: %t, want %t", got, c.wantEvent)
			}
			if got := marked(t, store); got != c.wantMarked {
				t.Errorf("marked for the evacuation of %q, want %q", got, c.wantMarked)
			}
		})
	}
}

func request(name, eviction string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: "prod", Name: name, SubResource: "eviction", Object: runtime.RawExtension{Raw: []byte(eviction)},
	}}
}

func judge(t *testing.T, response admission.Response, wantDenied string) {
	t.Helper()
	if response.Allowed != (wantDenied == "") {
		t.Fatalf("allowed: %t, %+v", response.Allowed, response.Result)
	}
	if wantDenied != "" && (response.Result.Code != 429 || !strings.Contains(response.Result.Message, wantDenied)) {
		t.Errorf("got %d %s, want %s", response.Result.Code, response.Result.Message, wantDenied)
	}
}

func marked(t *testing.T, from client.Client) string {
	t.Helper()
	vmi := &virtv1.VirtualMachineInstance{}
	if err := from.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: "web"}, vmi); err != nil {
		t.Fatal(err)
	}
	return vmi.Status.EvacuationNodeName
}

func TestAnEvictionThatIsOnlyTriedLeavesNoTrace(t *testing.T) {
	for _, strategy := range []virtv1.EvictionStrategy{virtv1.EvictionStrategyLiveMigrate, virtv1.EvictionStrategyExternal} {
		vmi := instance(strategy)
		store := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(vmi, podOf(vmi, "virt-launcher")).Build()
		told := events.NewFakeRecorder(1)
		webhook := &Webhook{Reader: store, Client: store, Events: told}
		in := request("virt-launcher-web-x", `{"deleteOptions":{"dryRun":["All"]}}`)
		judge(t, webhook.Handle(t.Context(), in), "VMI")
		in = request("virt-launcher-web-x", `{}`)
		in.DryRun = new(true)
		judge(t, webhook.Handle(t.Context(), in), "VMI")
		if got := marked(t, store); got != "" || len(told.Events) > 0 {
			t.Errorf("%s: marked for %q, %d events", strategy, got, len(told.Events))
		}
	}
}

func TestAPodThatIsGoneMayBeEvicted(t *testing.T) {
	store := fake.NewClientBuilder().WithScheme(scheme.New()).Build()
	judge(t, (&Webhook{Reader: store, Client: store}).Handle(t.Context(), request("virt-launcher-web-x", `{}`)), "")
}
