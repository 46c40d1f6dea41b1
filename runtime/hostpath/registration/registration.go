// Package registration tells the node's kubelet of a CSI driver: the kubelet finds a
// socket in its folder of plugins, asks there who it is, and calls the driver.
package registration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// csiVersion is the version of CSI that the kubelet asks for.
const csiVersion = "1.0.0"

// Plugin is a driver to register.
type Plugin struct {
	registerapi.UnimplementedRegistrationServer

	// Name is the driver's name, Endpoint the path of the socket on which it serves.
	Name, Endpoint string
	// Folder is the kubelet's folder of plugins to register.
	Folder string
	// Log hears what the kubelet answers.
	Log logr.Logger
}

// Serve keeps the driver registered until ctx ends, and then takes it back.
func (p *Plugin) Serve(ctx context.Context) error {
	path := filepath.Join(p.Folder, p.Name+"-reg.sock")
	if err := os.MkdirAll(p.Folder, 0o750); err != nil {
		return fmt.Errorf("making the kubelet's folder of plugins: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the old registration socket: %w", err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "unix", path) // the file goes when the listener closes
	if err != nil {
		return fmt.Errorf("listening for the kubelet's registration: %w", err)
	}
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, p)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving the kubelet's registration: %w", err)
	}
	return nil
}

// GetInfo tells the kubelet who the driver is.
func (p *Plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: p.Name, Endpoint: p.Endpoint, SupportedVersions: []string{csiVersion},
	}, nil
}

// NotifyRegistrationStatus hears whether the kubelet took the driver. It tries again by itself.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context, status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if status.GetPluginRegistered() {
		p.Log.Info("The kubelet registered the driver", "driver", p.Name)
	} else {
		p.Log.Info("The kubelet refused the driver", "driver", p.Name, "reason", status.GetError())
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
