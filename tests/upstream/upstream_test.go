//go:build e2e

package upstream

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
	kvcorev1 "kubevirt.io/client-go/kubevirt/typed/core/v1"
)

// Bounds of waits, generous: the guest runs under emulation on a busy machine.
const (
	boundBoot   = 8 * time.Minute
	boundChange = 5 * time.Minute
)

// world is a namespace with a VM, seen through KubeVirt's client.
type world struct {
	client kubecli.KubevirtClient
	ns     string
}

const name = "upstream"

func TestKubeVirtsClient(t *testing.T) {
	image := os.Getenv("SLIPWAY_TINY_IMAGE")
	if os.Getenv("KUBECONFIG") == "" || image == "" {
		const missing = "it needs a cluster with Slipway; set KUBECONFIG and SLIPWAY_TINY_IMAGE"
		if os.Getenv("SLIPWAY_REQUIRE") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	client, err := kubecli.GetKubevirtClientFromFlags("", os.Getenv("KUBECONFIG"))
	must(t, err)
	w := &world{client: client}
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "slipway-upstream-"}}, metav1.CreateOptions{})
	must(t, err)
	w.ns = ns.Name
	t.Cleanup(func() { _ = client.CoreV1().Namespaces().Delete(context.Background(), w.ns, metav1.DeleteOptions{}) })

	version, err := client.ServerVersion().Get()
	must(t, err)
	t.Logf("the API is version %s", version.GitVersion)
	_, err = client.VirtualMachine(w.ns).Create(t.Context(), machine(image), metav1.CreateOptions{})
	must(t, err)
	w.becomes(t, virtv1.VirtualMachineStatusStopped, boundChange)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"start", w.start}, {"console", w.console}, {"port-forward", w.portForward}, {"agent", w.agent}, {"freeze", w.freeze}, {"graph", w.graph}, {"USB", w.usb}, {"pause", w.pause},
		{"screenshot", w.screenshot}, {"restart", w.restart}, {"stop", w.stop}, {"refusals", w.refusals},
	} {
		if !t.Run(step.name, step.do) {
			break // what follows builds on it
		}
	}
	must(t, client.VirtualMachine(w.ns).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func machine(image string) *virtv1.VirtualMachine {
	strategy, memory := virtv1.RunStrategyManual, resource.MustParse("128Mi")
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
	vm.Spec.RunStrategy = &strategy
	vm.Spec.Template = &virtv1.VirtualMachineInstanceTemplateSpec{Spec: virtv1.VirtualMachineInstanceSpec{
		Domain: virtv1.DomainSpec{
			Memory: &virtv1.Memory{Guest: &memory},
			Devices: virtv1.Devices{
				Rng:        &virtv1.Rng{},
				Disks:      []virtv1.Disk{{Name: "root", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{Bus: virtv1.DiskBusVirtio}}}},
				Interfaces: []virtv1.Interface{*virtv1.DefaultMasqueradeNetworkInterface()},

				ClientPassthrough: &virtv1.ClientPassthroughDevices{},
			},
		},
		Networks: []virtv1.Network{*virtv1.DefaultPodNetwork()},
		Volumes:  []virtv1.Volume{{Name: "root", VolumeSource: virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{Image: image}}}},
	}}
	return vm
}

// becomes watches the VM until it is what is wanted.
func (w *world) becomes(t *testing.T, want virtv1.VirtualMachinePrintableStatus, bound time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	last := virtv1.VirtualMachinePrintableStatus("not there")
	for ctx.Err() == nil { // a watch ends now and then
		watch, err := w.client.VirtualMachine(w.ns).Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
		must(t, err)
		for event := range watch.ResultChan() {
			if vm, ok := event.Object.(*virtv1.VirtualMachine); ok {
				if last = vm.Status.PrintableStatus; last == want {
					watch.Stop()
					return
				}
			}
		}
	}
	t.Fatalf("the VM is %s after %s, want %s", last, bound, want)
}

func (w *world) start(t *testing.T) {
	must(t, w.client.VirtualMachine(w.ns).Start(t.Context(), name, &virtv1.StartOptions{}))
	w.becomes(t, virtv1.VirtualMachineStatusRunning, boundBoot)
	w.hasAgent(t)
}

// hasAgent waits until the guest has booted so far that its agent answers.
func (w *world) hasAgent(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), boundBoot)
	defer cancel()
	for {
		vmi, err := w.client.VirtualMachineInstance(w.ns).Get(ctx, name, metav1.GetOptions{})
		must(t, err)
		for _, c := range vmi.Status.Conditions {
			if c.Type == virtv1.VirtualMachineInstanceAgentConnected && c.Status == corev1.ConditionTrue {
				return
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no agent after %s; the VMI's conditions: %+v", boundBoot, vmi.Status.Conditions)
		case <-time.After(time.Second):
		}
	}
}

// reads reads from conn until text has come.
func reads(t *testing.T, conn net.Conn, text string, bound time.Duration) {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Now().Add(bound)))
	var seen bytes.Buffer
	buffer := make([]byte, 4096)
	for !strings.Contains(seen.String(), text) {
		n, err := conn.Read(buffer)
		seen.Write(buffer[:n])
		if err != nil {
			t.Fatalf("%v; read %q without %q", err, seen.String(), text)
		}
	}
}

func (w *world) console(t *testing.T) {
	stream, err := w.client.VirtualMachineInstance(w.ns).SerialConsole(name, &kvcorev1.SerialConsoleOptions{ConnectionTimeout: boundChange})
	must(t, err)
	conn := stream.AsConn()
	defer func() { _ = conn.Close() }()
	for deadline := time.Now().Add(boundBoot); ; {
		_, err := conn.Write([]byte("\r")) // the guest may have asked before we came
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(boundBoot)))
		buffer := make([]byte, 4096)
		n, err := conn.Read(buffer)
		must(t, err)
		if strings.Contains(string(buffer[:n]), "login:") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the guest asks for no login")
		}
	}
	_, err = conn.Write([]byte("root\r"))
	must(t, err)
	reads(t, conn, "assword:", boundChange)
}

func (w *world) portForward(t *testing.T) {
	for kind, open := range map[string]func(string, int, string) (kvcorev1.StreamInterface, error){
		"VM": w.client.VirtualMachine(w.ns).PortForward, "VMI": w.client.VirtualMachineInstance(w.ns).PortForward,
	} {
		stream, err := open(name, 22, "tcp")
		for deadline := time.Now().Add(boundChange); err != nil && time.Now().Before(deadline); { // the guest's server may be starting
			time.Sleep(time.Second)
			stream, err = open(name, 22, "tcp")
		}
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		conn := stream.AsConn()
		reads(t, conn, "SSH-2.0-", boundChange)
		_ = conn.Close()
	}
}

func (w *world) agent(t *testing.T) {
	for deadline := time.Now().Add(boundChange); ; time.Sleep(time.Second) { // it says one thing after the other
		info, err := w.client.VirtualMachineInstance(w.ns).GuestOsInfo(t.Context(), name)
		if err == nil && info.OS.KernelRelease != "" && info.GAVersion != "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agent says %+v, %v", info, err)
		}
	}
	_, err := w.client.VirtualMachineInstance(w.ns).UserList(t.Context(), name)
	must(t, err)
	_, err = w.client.VirtualMachineInstance(w.ns).FilesystemList(t.Context(), name)
	must(t, err)
}

func (w *world) graph(t *testing.T) {
	compute := &metav1.LabelSelector{MatchLabels: map[string]string{"kubevirt.io/dependency-type": "compute"}}
	root, err := w.client.VirtualMachine(w.ns).ObjectGraph(t.Context(), name, &virtv1.ObjectGraphOptions{LabelSelector: compute})
	must(t, err)
	if root.ObjectReference.Name != name || len(root.Children) != 1 || len(root.Children[0].Children) != 1 || root.Children[0].Children[0].ObjectReference.Kind != "Pod" {
		t.Errorf("the VM is made of %+v", root)
	}
	root, err = w.client.VirtualMachineInstance(w.ns).ObjectGraph(t.Context(), name, &virtv1.ObjectGraphOptions{})
	must(t, err)
	if root.ObjectReference.Kind != "VirtualMachineInstance" || len(root.Children) != 1 {
		t.Errorf("the VMI is made of %+v", root)
	}
}

func (w *world) usb(t *testing.T) {
	stream, err := w.client.VirtualMachineInstance(w.ns).USBRedir(name)
	must(t, err)
	conn := stream.AsConn()
	defer conn.Close()
	reads(t, conn, "qemu usb-redir guest", boundChange)
}

func (w *world) pause(t *testing.T) {
	must(t, w.client.VirtualMachineInstance(w.ns).Pause(t.Context(), name, &virtv1.PauseOptions{}))
	w.becomes(t, virtv1.VirtualMachineStatusPaused, boundChange)
	if err := w.client.VirtualMachineInstance(w.ns).Pause(t.Context(), name, &virtv1.PauseOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a paused VMI was paused again: %v", err)
	}
	must(t, w.client.VirtualMachineInstance(w.ns).Unpause(t.Context(), name, &virtv1.UnpauseOptions{}))
	w.becomes(t, virtv1.VirtualMachineStatusRunning, boundChange)
}

func (w *world) screenshot(t *testing.T) {
	picture, err := w.client.VirtualMachineInstance(w.ns).Screenshot(t.Context(), name, &virtv1.ScreenshotOptions{})
	must(t, err)
	if !bytes.HasPrefix(picture, []byte("\x89PNG")) {
		t.Errorf("the screen is no PNG, %d bytes", len(picture))
	}
}

func (w *world) restart(t *testing.T) {
	before, err := w.client.VirtualMachineInstance(w.ns).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	grace := int64(0)
	must(t, w.client.VirtualMachine(w.ns).Restart(t.Context(), name, &virtv1.RestartOptions{GracePeriodSeconds: &grace}))
	ctx, cancel := context.WithTimeout(t.Context(), boundBoot)
	defer cancel()
	for {
		after, err := w.client.VirtualMachineInstance(w.ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && after.UID != before.UID {
			break
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
			t.Fatal("the VM was not restarted")
		case <-time.After(time.Second):
		}
	}
	w.becomes(t, virtv1.VirtualMachineStatusRunning, boundBoot)
}

func (w *world) stop(t *testing.T) {
	must(t, w.client.VirtualMachine(w.ns).Stop(t.Context(), name, &virtv1.StopOptions{}))
	w.becomes(t, virtv1.VirtualMachineStatusStopped, boundChange)
}

// refusals are told with the field's codes.
func (w *world) refusals(t *testing.T) {
	if err := w.client.VirtualMachine(w.ns).Stop(t.Context(), name, &virtv1.StopOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a stopped VM was stopped: %v", err)
	}
	if err := w.client.VirtualMachine(w.ns).Start(t.Context(), "nobody", &virtv1.StartOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a VM that is not there was started: %v", err)
	}
	_, err := w.client.VirtualMachineInstance(w.ns).PortForward(name, 22, "tcp")
	var refused *kvcorev1.AsyncSubresourceError
	if !errors.As(err, &refused) || refused.GetStatusCode() < 400 || refused.GetStatusCode() >= 500 {
		t.Errorf("a port of a VM that does not run: %v", err)
	}
	expanded, err := w.client.VirtualMachine(w.ns).GetWithExpandedSpec(t.Context(), name)
	if err != nil || expanded.Name != name {
		t.Errorf("its expanded spec: %v", err)
	}
}
