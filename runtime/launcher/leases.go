package launcher

import (
	"context"
	"log/slog"
	"reflect"

	"github.com/slipway-vm/slipway/runtime/launcher/dhcp"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// leases are the DHCP servers of the guest's interfaces, by tap.
type leases struct {
	servers map[string]leaseServer
}

type leaseServer struct {
	link protocol.Interface
	stop context.CancelFunc
	done chan struct{}
}

// update starts, restarts and stops servers so that each link with a lease has one.
func (l *leases) update(ctx context.Context, links []protocol.Interface, granted func(), log *slog.Logger) error {
	if l.servers == nil {
		l.servers = map[string]leaseServer{}
	}
	for _, link := range links {
		running, ok := l.servers[link.Tap]
		if link.DHCP == nil || ok && reflect.DeepEqual(running.link, link) {
			continue
		}
		if ok {
			running.end()
			delete(l.servers, link.Tap)
		}
		server, err := dhcp.Listen(ctx, link, granted, log)
		if err != nil {
			return err
		}
		serving, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := server.Serve(serving); err != nil {
				log.Error("DHCP ended", "interface", link.Name, "err", err)
			}
		}()
		l.servers[link.Tap] = leaseServer{link: link, stop: stop, done: done}
	}
	return nil
}

func (s leaseServer) end() {
	s.stop()
	<-s.done
}

func (l *leases) stop() {
	for _, server := range l.servers {
		server.stop() // a server may be waiting for the machine, which has ended
	}
}
