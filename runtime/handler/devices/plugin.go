package devices

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"google.golang.org/grpc"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// serve offers device until ctx is done.
func (p *Plugins) serve(ctx context.Context, device Device) error {
	path := socketPath(p.KubeletRoot, device)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an earlier socket: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listening for the kubelet (is --kubelet-root right?): %w", err)
	}
	server := grpc.NewServer()
	one := &devicePlugin{device: device, path: path, shares: p.shares, done: ctx.Done()}
	registration.RegisterRegistrationServer(server, one)
	plugin.RegisterDevicePluginServer(server, one)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	log.FromContext(ctx).Info("Offering a device", "resource", device.Resource, "path", device.Path)
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving %s: %w", device.Resource, err)
	}
	return nil
}

// devicePlugin answers the kubelet for one device.
type devicePlugin struct {
	registration.UnimplementedRegistrationServer
	plugin.UnimplementedDevicePluginServer

	device Device
	path   string
	shares *shares
	done   <-chan struct{}
}

// GetInfo tells the kubelet, which found the socket, what it is.
func (d *devicePlugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DevicePlugin, Name: d.device.Resource,
		Endpoint: d.path, SupportedVersions: []string{plugin.Version},
	}, nil
}

// NotifyRegistrationStatus hears whether the kubelet took the plugin.
func (d *devicePlugin) NotifyRegistrationStatus(ctx context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.FromContext(ctx).Error(errors.New(status.Error), "The kubelet refused a device", "resource", d.device.Resource)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// GetDevicePluginOptions asks for no optional call.
func (d *devicePlugin) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

// ListAndWatch lists the device as often as it can be shared, anew when that changes.
func (d *devicePlugin) ListAndWatch(_ *plugin.Empty, stream grpc.ServerStreamingServer[plugin.ListAndWatchResponse]) error {
	for {
		count, changed := d.shares.now()
		list := make([]*plugin.Device, count)
		for i := range list {
			list[i] = &plugin.Device{ID: strconv.Itoa(i), Health: plugin.Healthy}
		}
		if err := stream.Send(&plugin.ListAndWatchResponse{Devices: list}); err != nil {
			return fmt.Errorf("listing %s: %w", d.device.Resource, err)
		}
		select {
		case <-changed:
		case <-d.done:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate puts the device file into each container that asks for a share.
func (d *devicePlugin) Allocate(_ context.Context, request *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	response := &plugin.AllocateResponse{}
	for range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &plugin.ContainerAllocateResponse{
			Devices: []*plugin.DeviceSpec{{HostPath: d.device.Path, ContainerPath: d.device.Path, Permissions: "rw"}},
		})
	}
	return response, nil
}
