package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// sockets are where QEMU serves the guest's devices, in the VM's own folder.
var sockets = func() map[protocol.Channel]string {
	all := map[protocol.Channel]string{protocol.ChannelConsole: socketConsole, protocol.ChannelVNC: socketVNC}
	for slot := range v1.UsbClientPassthroughMaxNumberOf {
		all[protocol.ChannelUSB(slot)] = domain.USBSocket(socketsUSB, slot)
	}
	return all
}()

const (
	socketConsole = "virt-serial0"
	socketVNC     = "virt-vnc"
	socketMetrics = "virt-downwardmetrics"
	socketsUSB    = "virt-usbredir-"
	// socketsFilesystem begins the names of the sockets of filesystems.
	socketsFilesystem = "virt-fs-"
)

// connect joins the stream that came with the request with QEMU's socket. ctx ends with
// the handler's connection, and with it the streams.
func (m *machine) connect(ctx context.Context, request wire.Request, _ protocol.State) (any, error) {
	var connect protocol.Connect
	if err := request.Decode(&connect); err != nil {
		return nil, err
	}
	name, known := sockets[connect.Channel]
	if !known || len(request.Files) != 1 {
		return nil, fmt.Errorf("a connection is to one of %v and comes with one stream; got %q and %d",
			slices.Sorted(maps.Keys(sockets)), connect.Channel, len(request.Files))
	}
	client, err := net.FileConn(request.Files[0])
	if err != nil {
		return nil, fmt.Errorf("taking over the stream: %w", err)
	}
	var dialer net.Dialer
	device, err := dialer.DialContext(ctx, "unix", filepath.Join(m.options.own(), name))
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("the guest has no %s", connect.Channel)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to the guest's %s: %w", connect.Channel, err), client.Close())
	}
	go splice(ctx, client, device)
	return nil, nil
}

// splice copies both ways until either side ends, and closes both.
func splice(ctx context.Context, a, b net.Conn) {
	var once sync.Once
	end := func() {
		once.Do(func() {
			_ = a.Close()
			_ = b.Close()
		})
	}
	stop := context.AfterFunc(ctx, end)
	defer stop()
	var copying sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		copying.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // however it ends, it ends both ways
			end()
		})
	}
	copying.Wait()
}
