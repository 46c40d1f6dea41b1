package devices

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	v1 "kubevirt.io/api/core/v1"
)

// TestTheKubeletFindsTheDevice does what a kubelet does with a socket in its folder.
func TestTheKubeletFindsTheDevice(t *testing.T) {
	root, err := os.MkdirTemp("", "kubelet") // a test's own folder may be too long for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	must(t, os.Mkdir(filepath.Join(root, "plugins_registry"), 0o755))
	device := Device{Resource: "devices.kubevirt.io/null", Path: "/dev/null"}
	path := socketPath(root, device)
	must(t, os.WriteFile(path, nil, 0o600)) // what a killed handler left behind

	offered := newShares()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&Plugins{KubeletRoot: root, shares: offered}).serve(ctx, device) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	wait := grpc.WaitForReady(true)
	deadline, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	info, err := registration.NewRegistrationClient(conn).GetInfo(deadline, &registration.InfoRequest{}, wait)
	must(t, err)
	if info.Type != registration.DevicePlugin || info.Name != device.Resource || info.Endpoint != path || len(info.SupportedVersions) != 1 {
		t.Errorf("it introduces itself as %v", info)
	}
	kubelet := plugin.NewDevicePluginClient(conn)
	watch, err := kubelet.ListAndWatch(deadline, &plugin.Empty{}, wait)
	must(t, err)
	list, err := watch.Recv()
	must(t, err)
	if len(list.Devices) != capacity || list.Devices[0].Health != plugin.Healthy {
		t.Errorf("it lists %d devices, the first %v", len(list.Devices), list.Devices[0])
	}
	offered.set(3)
	list, err = watch.Recv()
	must(t, err)
	if len(list.Devices) != 3 {
		t.Errorf("it lists %d devices where there are to be 3", len(list.Devices))
	}
	request := &plugin.AllocateRequest{ContainerRequests: []*plugin.ContainerAllocateRequest{{DevicesIds: []string{"0"}}, {DevicesIds: []string{"1"}}}}
	granted, err := kubelet.Allocate(deadline, request, wait)
	must(t, err)
	if len(granted.ContainerResponses) != 2 || granted.ContainerResponses[1].Devices[0].HostPath != "/dev/null" {
		t.Errorf("it grants %v", granted)
	}

	stop()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(time.Minute):
		t.Error("it does not end while the kubelet watches")
	}
}

func TestKVMIsNotOfferedWithoutItsProof(t *testing.T) {
	root := t.TempDir() // without the kubelet's folder, offering anything would fail
	plugins := &Plugins{KubeletRoot: root, Prove: func(context.Context) error { return errors.New("emulated") }}
	if err := plugins.Start(t.Context()); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestKubeVirtSaysHowManyPodsHaveADevice(t *testing.T) {
	for name, c := range map[string]struct {
		said *int
		want int
	}{
		"nothing":   {want: capacity},
		"a number":  {said: new(10), want: 10},
		"none ever": {said: new(0), want: capacity}, // which is refused, but may be stored
	} {
		kubevirt := &v1.KubeVirt{}
		kubevirt.Spec.Configuration.VirtualMachineInstancesPerNode = c.said
		if got := sharesOf(kubevirt); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
