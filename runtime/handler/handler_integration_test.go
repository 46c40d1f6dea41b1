//go:build integration

package handler_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/runtime/handler"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// rootVariable makes this test's own program a virt-handler on that kubelet root.
const rootVariable = "SLIPWAY_TEST_KUBELET_ROOT"

// metricsVariable is where that virt-handler serves metrics.
const metricsVariable = "SLIPWAY_TEST_METRICS_ADDRESS"

const nodeName = "node1"

// patience is how long each wait may take: on a busy machine a process may have no processor for half a minute.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	if root := os.Getenv(rootVariable); root != "" {
		if err := beHandler(root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func beHandler(root string) error {
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(root, "kubeconfig"))
	if err != nil {
		return err
	}
	return handler.Run(ctx, handler.Options{
		Config: config, NodeName: nodeName, Namespace: "slipway", KubeletRoot: root, Address: "0", MetricsAddress: os.Getenv(metricsVariable), APIAddress: "127.0.0.1:0",
		ProveKVM: []string{"/bin/false"},
	})
}

// TestHandler runs virt-handler as a process against a real API server, with launchers
// that are processes of another user in namespaces of their own.
func TestHandler(t *testing.T) {
	w := newWorld(t)
	t.Run("a scheduled VMI runs with few writes, outlives kill -9 and ends within its grace", w.lifeOfAVMI)
	t.Run("a guest has what the KubeVirt object says of all", w.installation)
	t.Run("a guest that ignores its shutdown is powered off when its grace is over", w.stubbornGuest)
	t.Run("container disks that were lost before the start end the VMI with the reason", w.lostDisk)
	t.Run("a file of the node is made before the guest starts, and only then", w.hostDisk)
	t.Run("disks come and go with the VMI's volumes", w.plugs)
	t.Run("a guest's memory is dumped to a volume, once", w.dumps)
	t.Run("a launcher of an earlier version dumps no memory", w.refusesDumps)
	t.Run("a block device comes open, and only once it is free", w.plugsDevice)
	t.Run("a VMI is ready as its probe finds, and ends with the reason when the other fails", w.probed)
	t.Run("guests are measured, and those of older launchers said not to be", w.measures)
	t.Run("the node is marked schedulable with a heartbeat", w.heartbeat)
}

func (w *world) lifeOfAVMI(t *testing.T) {
	stop := w.startHandler(t)
	vmi := w.newVMI(t, "life", 20)
	pod := w.newPod(t, vmi)
	disk := pod.run(t, "container-disk", pod.file(t))
	disk.wait(t)
	launcher := pod.run(t, "launcher", string(vmi.UID))
	launcher.expect(t, "greeted", "sync life with disks [root] 1")
	w.eventually(t, vmi, "Running", func() bool { return vmi.Status.Phase == v1.Running })
	if len(vmi.Status.Interfaces) != 1 || vmi.Status.Interfaces[0].IP != podIP || vmi.Status.Interfaces[0].PodInterfaceName != "eth0" {
		t.Errorf("interfaces are %+v", vmi.Status.Interfaces)
	}
	if len(vmi.Status.VolumeStatus) != 1 || vmi.Status.VolumeStatus[0].Target != "vda" {
		t.Errorf("volumes are %+v", vmi.Status.VolumeStatus)
	}
	if vmi.Generation != 2 && !w.unanswered(t, vmi) { // its creation and the one write
		t.Errorf("it was written %d times until Running, want 1", vmi.Generation-1)
	}
	w.eventually(t, vmi, "said to be ready", func() bool {
		conditions := conditionsOf(vmi)
		return conditions["Ready"] == "True" && conditions["SoftwareEmulation"] == "True" && conditions["LiveMigratable"] == "False" && conditions["Foreign"] == "True"
	})

	w.events(t, vmi, "Created", "Started") // they are sent a moment after the write, and a killed handler sends none
	stop(syscall.SIGKILL)
	launcher.expect(t, "lost")
	w.get(t, vmi)
	before := vmi.ResourceVersion
	stop = w.startHandler(t)
	launcher.expect(t, "greeted", "sync life with disks [] 0")
	w.get(t, vmi)
	if (vmi.ResourceVersion != before || vmi.Status.Phase != v1.Running) && !w.unanswered(t, vmi) {
		t.Errorf("the restart wrote the VMI: it is %s at version %s, was at %s", vmi.Status.Phase, vmi.ResourceVersion, before)
	}

	w.delete(t, vmi)
	launcher.expectShutdown(t, 20, "over")
	w.eventually(t, vmi, "Succeeded", func() bool { return vmi.Status.Phase == v1.Succeeded })
	if got := conditionsOf(vmi)["Ready"]; got != "False" {
		t.Errorf("Ready is %s", got)
	}
	w.events(t, vmi, "Created", "Started", "ShuttingDown", "Stopped")
	stop(syscall.SIGTERM)
}

func (w *world) stubbornGuest(t *testing.T) {
	defer w.startHandler(t)(syscall.SIGTERM)
	vmi := w.newVMI(t, "stubborn", 2)
	pod := w.newPod(t, vmi)
	pod.run(t, "container-disk", pod.file(t)).wait(t)
	launcher := pod.run(t, "stubborn", string(vmi.UID))
	launcher.expect(t, "greeted", "sync stubborn with disks [root] 1")
	w.eventually(t, vmi, "Running", func() bool { return vmi.Status.Phase == v1.Running })
	w.delete(t, vmi)
	launcher.expectShutdown(t, 2, "destroy", "over")
	w.events(t, vmi, "ShuttingDown", "Deleted")
}

func (w *world) lostDisk(t *testing.T) {
	defer w.startHandler(t)(syscall.SIGTERM)
	vmi := w.newVMI(t, "lost", 20)
	pod := w.newPod(t, vmi)
	launcher := pod.run(t, "launcher", string(vmi.UID))
	launcher.expect(t, "greeted", "destroy")
	w.eventually(t, vmi, "Failed", func() bool { return vmi.Status.Phase == v1.Failed })
	for _, condition := range vmi.Status.Conditions {
		if condition.Type == v1.VirtualMachineInstanceReady && condition.Reason != "ContainerDiskLost" {
			t.Errorf("Ready says %s: %s", condition.Reason, condition.Message)
		}
	}
}

func (w *world) heartbeat(t *testing.T) {
	node := &corev1.Node{}
	must(t, w.client.Get(t.Context(), client.ObjectKey{Name: nodeName}, node))
	if node.Labels[v1.NodeSchedulable] != "true" || !strings.HasPrefix(node.Annotations[v1.VirtHandlerHeartbeat], `"20`) {
		t.Errorf("labels are %v, annotations %v", node.Labels, node.Annotations)
	}
	for _, label := range []string{v1.CPUManager, v1.DeprecatedCPUManager} {
		if node.Labels[label] != "true" { // as the kubelet's file says
			t.Errorf("label %s is %q, want true", label, node.Labels[label])
		}
	}
	block, _ := pem.Decode([]byte(node.Annotations[names.HandlerCertificateAnnotation]))
	if block == nil {
		t.Fatalf("there is no certificate in the annotations %v", node.Annotations)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	must(t, certificate.VerifyHostname(names.HandlerServerName))
}

// world is an API server, a node's kubelet root and the stand-in for launchers.
type world struct {
	client   client.Client
	root     string
	launcher string
	metrics  string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes namespaces, cgroups and processes of another user: run it as root")
	}
	need.APIServer(t)
	const crds = "../../controllers/hyperconverged/components/crds/kubevirt.io_"
	server := &envtest.Environment{
		Scheme: scheme.New(), CRDDirectoryPaths: []string{crds + "virtualmachineinstances.yaml", crds + "kubevirts.yaml"}, ErrorIfCRDPathMissing: true,
	}
	config, err := apiserver.Begin(server)
	must(t, err)
	t.Cleanup(func() { must(t, server.Stop()) })
	root, err := os.MkdirTemp("", "kubelet")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	must(t, os.Chmod(root, 0o755))
	must(t, os.Mkdir(filepath.Join(root, "plugins_registry"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "kubeconfig"), server.KubeConfig, 0o600))
	must(t, os.WriteFile(filepath.Join(root, "cpu_manager_state"), []byte(`{"policyName":"static"}`), 0o600))
	w := &world{root: root, launcher: filepath.Join(root, "launcher"), metrics: freeAddress(t)}
	w.client = apiserver.Player(t, config)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", w.launcher, "./testdata/launcher")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the stand-in for launchers: %v\n%s", err, output)
	}
	must(t, w.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}))
	return w
}

// startHandler runs virt-handler until the returned function is called with a signal.
func (w *world) startHandler(t *testing.T) func(os.Signal) {
	t.Helper()
	own, err := os.Executable()
	must(t, err)
	command := exec.Command(own)
	command.Env = append(os.Environ(), rootVariable+"="+w.root, metricsVariable+"="+w.metrics)
	log := &strings.Builder{}
	command.Stdout, command.Stderr = log, log
	must(t, command.Start())
	ended := false
	stop := func(with os.Signal) {
		if ended {
			return
		}
		ended = true
		must(t, command.Process.Signal(with))
		err := command.Wait()
		if with == syscall.SIGTERM && err != nil {
			t.Errorf("virt-handler ended with %v", err)
		}
		if t.Failed() {
			t.Logf("virt-handler said:\n%s", log)
		}
	}
	t.Cleanup(func() { stop(syscall.SIGKILL) })
	return stop
}

func (w *world) newVMI(t *testing.T, name string, grace int64, edits ...func(*v1.VirtualMachineInstanceSpec)) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", Labels: map[string]string{v1.NodeNameLabel: nodeName},
		Finalizers: []string{v1.VirtualMachineInstanceFinalizer},
	}}
	nic := v1.Interface{Name: "default"}
	nic.Masquerade = &v1.InterfaceMasquerade{}
	vmi.Spec.TerminationGracePeriodSeconds = &grace
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{nic}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "x"}}}}
	vmi.Status.Phase, vmi.Status.NodeName = v1.Scheduled, nodeName
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: "Foreign", Status: corev1.ConditionTrue}}
	for _, edit := range edits {
		edit(&vmi.Spec)
	}
	must(t, w.client.Create(t.Context(), vmi))
	return vmi
}

func (w *world) delete(t *testing.T, vmi *v1.VirtualMachineInstance) {
	t.Helper()
	must(t, w.client.Delete(t.Context(), vmi))
}

func (w *world) get(t *testing.T, vmi *v1.VirtualMachineInstance) {
	t.Helper()
	must(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
}

func (w *world) eventually(t *testing.T, vmi *v1.VirtualMachineInstance, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if w.get(t, vmi); met() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the VMI is not %s: %+v", what, vmi.Status)
		}
	}
}

// events waits for events with these reasons.
func (w *world) events(t *testing.T, vmi *v1.VirtualMachineInstance, reasons ...string) {
	t.Helper()
	missing := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		seen := w.told(t, vmi)
		missing = ""
		for _, reason := range reasons {
			if !seen[reason] {
				missing += " " + reason
			}
		}
		if missing == "" {
			return
		}
	}
	t.Errorf("no events with reason%s", missing)
}

// told are the reasons of all events about vmi so far.
func (w *world) told(t *testing.T, vmi *v1.VirtualMachineInstance) map[string]bool {
	t.Helper()
	list := &corev1.EventList{}
	must(t, w.client.List(t.Context(), list))
	seen := map[string]bool{}
	for _, event := range list.Items {
		if event.InvolvedObject.UID == vmi.UID {
			seen[event.Reason] = true
		}
	}
	return seen
}

// unanswered says whether the launcher stood still for so long, as on a busy machine it may, that the VMI was written for that too. The
// event comes a moment after the write.
func (w *world) unanswered(t *testing.T, vmi *v1.VirtualMachineInstance) bool {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if w.told(t, vmi)[names.ReasonLauncherUnresponsive] {
			return true
		}
	}
	return false
}

func conditionsOf(vmi *v1.VirtualMachineInstance) map[string]string {
	out := map[string]string{}
	for _, condition := range vmi.Status.Conditions {
		out[string(condition.Type)] = string(condition.Status)
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
