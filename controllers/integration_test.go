//go:build integration

package controllers

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/admission"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/freeport"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

const (
	installed = "slipway"
	nodeName  = "node-1"
	// bound is how long a wait takes at the most, on a busy machine too.
	bound = "5m"
)

// cluster is an API server with Slipway's definitions, virt-controller and virt-api. The
// tests are scheduler, kubelet and virt-handler.
type cluster struct {
	client.WithWatch
	config *rest.Config
	// stopAPI ends virt-api.
	stopAPI context.CancelFunc
}

// shared is started by the first test that needs it.
var shared *cluster

func TestMain(m *testing.M) {
	if server := os.Getenv(envServer); server != "" {
		os.Exit(runAlone(server))
	}
	code := m.Run()
	if stopShared != nil {
		stopShared()
	}
	os.Exit(code)
}

var stopShared func()

func start(t *testing.T) *cluster {
	t.Helper()
	need.APIServer(t)
	if shared != nil {
		return shared
	}
	ctrllog.SetLogger(klog.Background())
	server := &envtest.Environment{Scheme: scheme.New(), CRDDirectoryPaths: []string{"hyperconverged/components/crds"}, ErrorIfCRDPathMissing: true}
	config, err := apiserver.Begin(server)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stopShared = func() { cancel(); _ = server.Stop() }
	c := &cluster{config: config}
	c.WithWatch = apiserver.Player(t, config)
	must(t, c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installed}}))
	c.makeNode(t, nodeName, alive(), corev1.ConditionTrue)
	c.useEmulation(t, true)
	port := freeport.TCP(t)
	apiContext, stopAPI := context.WithCancel(ctx)
	c.stopAPI = stopAPI
	go func() {
		_ = admission.Run(apiContext, config, admission.Options{Namespace: installed, Port: port, HealthAddress: "0", MetricsAddress: "0", Hosts: []string{"localhost"}})
	}()
	go func() {
		_ = Run(ctx, config, Options{
			LauncherImage: "launcher", ImporterImage: "slipway", Namespace: installed, DataLog: new(dataLog.logger()), Identity: "test", HealthAddress: "0", MetricsAddress: "0",
			lease: lease{duration: time.Hour, deadline: 30 * time.Minute, retry: 15 * time.Second}, // nobody else wants it
		})
	}()
	c.configureWebhooks(t, port)
	shared = c
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// configureWebhooks installs the operator's own configuration, but for the address and the time to answer: as much as there may be, so that
// a late answer is none that the tests do not want.
func (c *cluster) configureWebhooks(t *testing.T, port int) {
	t.Helper()
	data, err := os.ReadFile("hyperconverged/components/virt-api/webhooks.yaml")
	must(t, err)
	for document := range strings.SplitSeq(strings.ReplaceAll(string(data), "{{.Namespace}}", installed), "\n---\n") {
		redirect := func(config *admissionregistrationv1.WebhookClientConfig, timeout **int32) {
			config.URL = new(fmt.Sprintf("https://localhost:%d%s", port, *config.Service.Path))
			config.Service, *timeout = nil, new(int32(30))
		}
		if strings.Contains(document, "kind: MutatingWebhookConfiguration") {
			object := &admissionregistrationv1.MutatingWebhookConfiguration{}
			must(t, yaml.Unmarshal([]byte(document), object))
			for i := range object.Webhooks {
				redirect(&object.Webhooks[i].ClientConfig, &object.Webhooks[i].TimeoutSeconds)
			}
			must(t, c.Create(t.Context(), object))
			continue
		}
		object := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		must(t, yaml.Unmarshal([]byte(document), object))
		for i := range object.Webhooks {
			redirect(&object.Webhooks[i].ClientConfig, &object.Webhooks[i].TimeoutSeconds)
		}
		must(t, c.Create(t.Context(), object))
	}
	gomega.NewWithT(t).Eventually(func() error {
		vm := newVM("default", "probe")
		return c.Create(t.Context(), vm, client.DryRunAll)
	}, bound, "200ms").Should(gomega.Succeed(), "virt-api serves and is trusted")
}

// alive is the heartbeat of a virt-handler that is alive for as long as the tests take.
func alive() time.Time { return time.Now().Add(time.Hour) }

func (c *cluster) makeNode(t *testing.T, name string, heartbeat time.Time, ready corev1.ConditionStatus) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{virtv1.NodeSchedulable: "true"},
		Annotations: map[string]string{virtv1.VirtHandlerHeartbeat: strconv.Quote(heartbeat.UTC().Format(time.RFC3339))},
	}}
	must(t, c.Create(t.Context(), node))
	c.ready(t, node, ready)
	return node
}

// ready is the kubelet, or its absence.
func (c *cluster) ready(t *testing.T, node *corev1.Node, status corev1.ConditionStatus) {
	t.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
	must(t, c.Status().Patch(t.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

func (c *cluster) useEmulation(t *testing.T, allowed bool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also when the test is over
	kv := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: names.KubeVirtName}}
	kv.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{UseEmulation: allowed}
	existing := &virtv1.KubeVirt{}
	err := c.Get(ctx, client.ObjectKeyFromObject(kv), existing)
	if apierrors.IsNotFound(err) {
		must(t, c.Create(ctx, kv))
		return
	}
	must(t, err)
	existing.Spec = kv.Spec
	must(t, c.Update(ctx, existing))
}

// namespace makes a namespace for a test.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	must(t, c.Create(t.Context(), ns))
	t.Cleanup(func() {
		if t.Failed() {
			c.show(t, ns.Name)
		}
	})
	return ns.Name
}

// show prints what is in a namespace.
func (c *cluster) show(t *testing.T, namespace string) {
	t.Helper()
	for _, list := range []client.ObjectList{
		&virtv1.VirtualMachineList{}, &virtv1.VirtualMachineInstanceList{}, &cdiv1.DataVolumeList{},
		&corev1.PersistentVolumeClaimList{}, &corev1.PodList{}, &corev1.EventList{},
	} {
		err := c.List(context.WithoutCancel(t.Context()), list, client.InNamespace(namespace))
		text, encodeErr := yaml.Marshal(list)
		t.Logf("%T in %s: %v %v\n%s", list, namespace, err, encodeErr, text)
	}
}

func newVM(namespace, name string) *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{}
	err := yaml.Unmarshal([]byte(`
spec:
  runStrategy: Always
  template:
    spec:
      domain: {memory: {guest: 64Mi}, devices: {}}
      volumes: [{name: root, containerDisk: {image: img}}]
`), vm)
	if err != nil {
		return nil
	}
	vm.Namespace, vm.Name = namespace, name
	return vm
}

// launcher waits for the one launcher pod of the VMI.
func (c *cluster) launcher(t *testing.T, key client.ObjectKey, not ...types.UID) *corev1.Pod {
	t.Helper()
	return c.podOf(t, key, pod.KindLauncher, not...)
}

func (c *cluster) podOf(t *testing.T, key client.ObjectKey, kind string, not ...types.UID) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	gomega.NewWithT(t).Eventually(func() (int, error) {
		list := &corev1.PodList{}
		err := c.List(t.Context(), list, client.InNamespace(key.Namespace), client.MatchingLabels{names.LabelPod: kind})
		count := 0
		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp == nil && (len(not) == 0 || p.UID != not[0]) && metav1.GetControllerOf(p).Name == key.Name {
				found = p
				count++
			}
		}
		return count, err
	}, bound, "50ms").Should(gomega.Equal(1), "%s pods of %s", kind, key)
	return found
}

// bind is the scheduler.
func (c *cluster) bind(t *testing.T, p *corev1.Pod, node string) {
	t.Helper()
	must(t, c.SubResource("binding").Create(t.Context(), p, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}))
}

// report is the kubelet.
func (c *cluster) report(t *testing.T, p *corev1.Pod, change func(*corev1.PodStatus)) {
	t.Helper()
	current := &corev1.Pod{}
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(p), current))
	change(&current.Status)
	must(t, c.Status().Update(t.Context(), current))
}

func computeRuns(status *corev1.PodStatus) {
	status.Phase = corev1.PodRunning
	status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: names.ComputeContainer, Image: "launcher", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
}

// guestRuns is virt-handler.
func (c *cluster) guestRuns(t *testing.T, key client.ObjectKey) {
	t.Helper()
	vmi := c.vmi(t, key)
	must(t, apply.Fields(t.Context(), c, vmi, names.ManagerHandler, map[string]any{"status": map[string]any{
		"phase": virtv1.Running,
		"phaseTransitionTimestamps": append(vmi.Status.PhaseTransitionTimestamps, virtv1.VirtualMachineInstancePhaseTransitionTimestamp{
			Phase: virtv1.Running, PhaseTransitionTimestamp: metav1.Now(),
		}),
		"conditions": []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}},
	}}))
}

func (c *cluster) vmi(t *testing.T, key client.ObjectKey) *virtv1.VirtualMachineInstance {
	t.Helper()
	vmi := &virtv1.VirtualMachineInstance{}
	must(t, c.Get(t.Context(), key, vmi))
	return vmi
}

// vmiSays waits until what of returns of the VMI is want.
func (c *cluster) vmiSays(t *testing.T, key client.ObjectKey, want string, of func(*virtv1.VirtualMachineInstance) string) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() (string, error) {
		vmi := &virtv1.VirtualMachineInstance{}
		err := c.Get(t.Context(), key, vmi)
		return of(vmi), err
	}, bound, "50ms").Should(gomega.ContainSubstring(want), "VMI %s", key)
}

func phase(vmi *virtv1.VirtualMachineInstance) string { return string(vmi.Status.Phase) }

// condition returns what a condition says: status, reason and message.
func condition(kind virtv1.VirtualMachineInstanceConditionType) func(*virtv1.VirtualMachineInstance) string {
	return func(vmi *virtv1.VirtualMachineInstance) string {
		for _, c := range vmi.Status.Conditions {
			if c.Type == kind {
				return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
			}
		}
		return "none"
	}
}

// vmIs waits for the VM's printable status.
func (c *cluster) vmIs(t *testing.T, key client.ObjectKey, want virtv1.VirtualMachinePrintableStatus) *virtv1.VirtualMachine {
	t.Helper()
	vm := &virtv1.VirtualMachine{}
	gomega.NewWithT(t).Eventually(func() (virtv1.VirtualMachinePrintableStatus, error) {
		err := c.Get(t.Context(), key, vm)
		return vm.Status.PrintableStatus, err
	}, bound, "50ms").Should(gomega.Equal(want), "VM %s", key)
	return vm
}

// becoming begins to follow a VM, and returns what waits until its printable status is, or has been since, what is wanted: what lasts for a
// while only, this process may miss by reading.
func (c *cluster) becoming(t *testing.T, key client.ObjectKey) func(virtv1.VirtualMachinePrintableStatus) *virtv1.VirtualMachine {
	t.Helper()
	now := &virtv1.VirtualMachineList{}
	must(t, c.List(t.Context(), now, client.InNamespace(key.Namespace)))
	changes := apiserver.Watch(t, c, now, client.InNamespace(key.Namespace))
	return func(want virtv1.VirtualMachinePrintableStatus) *virtv1.VirtualMachine {
		t.Helper()
		var vm *virtv1.VirtualMachine
		gomega.NewWithT(t).Eventually(changes.ResultChan(), bound).Should(gomega.Receive(gomega.Satisfy(func(event watch.Event) bool {
			changed, is := event.Object.(*virtv1.VirtualMachine)
			if is && changed.Name == key.Name {
				vm = changed
			}
			return vm != nil && vm == changed && vm.Status.PrintableStatus == want
		})), "VM %s is %s", key, want)
		return vm
	}
}

// gone waits until an object is.
func (c *cluster) gone(t *testing.T, object client.Object) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	}, bound, "50ms").Should(gomega.BeTrue(), "%T %s is gone", object, object.GetName())
}
