// Package portforward has the verb that leads local ports to ports of a guest.
package portforward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// options are the flags.
type options struct {
	stdio    bool
	address  string
	vsock    bool
	vsockTLS bool
}

// NewCommand returns the verb.
func NewCommand(cluster subresource.Cluster) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "port-forward TYPE/NAME[/NAMESPACE] [PROTOCOL/]LOCAL[:TARGET]...",
		Short: "Leads local ports to ports of a VM",
		Long: `Leads local ports to ports of a VM or a VMI, until the program is ended.

TYPE is virtualmachine (vm) or virtualmachineinstance (vmi), in any case and also in the plural. PROTOCOL is tcp or
udp, tcp when it is left out; TARGET is LOCAL when it is left out. What is sent goes through the API server: for much of it
use a Service, which expose makes.

With --vsock the ports are not of the guest's network, but of its VSOCK device. A guest needs no network for that.`,
		Example: `  # Port 8080 of this machine leads to port 80 of the VM "web":
  virtctl port-forward vm/web 8080:80

  # A DNS server in a VMI of another namespace:
  virtctl port-forward vmi/dns/infra udp/5353:53

  # A program of the guest that listens on VSOCK port 9000, without TLS:
  virtctl port-forward vm/web 8080:9000 --vsock --vsock-tls=false

  # SSH, with the program in the place of a network:
  ssh -o ProxyCommand='virtctl port-forward --stdio vm/web 22' admin@web`,
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := ParseTarget(args[0])
			if err != nil {
				return err
			}
			ports, err := parsePorts(args[1:])
			if err != nil {
				return err
			}
			if o.vsock && slices.ContainsFunc(ports, func(p port) bool { return p.protocol == protocolUDP }) {
				return errors.New("forwarding protocol udp is not supported over VSOCK; write tcp")
			}
			return o.run(cmd, cluster, t, ports)
		},
	}
	command.Flags().BoolVar(&o.stdio, "stdio", false, "Lead standard input and output to the port, and not a local port. There must be one port.")
	command.Flags().StringVar(&o.address, "address", "127.0.0.1", "Address of this machine at which the local ports are opened.")
	command.Flags().BoolVar(&o.vsock, "vsock", false, "Lead to ports of the guest's VSOCK device.")
	command.Flags().BoolVar(&o.vsockTLS, "vsock-tls", true, "Have virt-handler speak TLS to the guest's port. Goes with --vsock.")
	return command
}

func (o *options) run(cmd *cobra.Command, cluster subresource.Cluster, t Target, ports []port) error {
	if o.stdio && len(ports) != 1 {
		return errors.New("only one port supported when forwarding to stdout")
	}
	api, err := subresource.Of(cluster)
	if err != nil {
		return err
	}
	if t.Namespace != "" {
		api.Namespace = t.Namespace
	}
	f := forwarder{api: api, target: t, log: cmd.ErrOrStderr(), vsock: o.vsock, vsockTLS: o.vsockTLS}
	if o.stdio {
		stream, err := f.open(cmd.Context(), ports[0])
		if err != nil {
			return err
		}
		return stream.Join(cmd.Context(), stdio{Reader: cmd.InOrStdin(), Writer: cmd.OutOrStdout()})
	}
	for _, p := range ports {
		f.say("forwarding %s %s:%d to %d", p.protocol, o.address, p.local, p.remote)
		listen := f.listenTCP
		if p.protocol == protocolUDP {
			listen = f.listenUDP
		}
		if err := listen(cmd.Context(), net.JoinHostPort(o.address, strconv.Itoa(p.local)), p); err != nil {
			return err
		}
	}
	<-cmd.Context().Done()
	return nil
}

// stdio is the program's own input and output.
type stdio struct {
	io.Reader
	io.Writer
}

// Close does nothing: the streams end with the program.
func (stdio) Close() error { return nil }

// forwarder opens ports of a target.
type forwarder struct {
	api    *subresource.API
	target Target
	log    io.Writer
	lock   sync.Mutex // of log
	// vsock leads to VSOCK ports, to which virt-handler speaks TLS with vsockTLS.
	vsock, vsockTLS bool
}

func (f *forwarder) say(format string, args ...any) {
	f.lock.Lock()
	defer f.lock.Unlock()
	fmt.Fprintf(f.log, format+"\n", args...)
}

func (f *forwarder) open(ctx context.Context, p port) (*subresource.Stream, error) {
	object := subresource.Instance(f.target.Name)
	if f.target.Kind == VM {
		object = subresource.Machine(f.target.Name)
	}
	path, query := fmt.Sprintf("portforward/%d/%s", p.remote, p.protocol), url.Values(nil)
	if f.vsock { // a VM's instance has its name
		object, path = subresource.Instance(f.target.Name), "vsock"
		query = url.Values{"port": {strconv.Itoa(p.remote)}, "tls": {strconv.FormatBool(f.vsockTLS)}}
	}
	stream, err := f.api.Stream(ctx, object, path, query)
	if err != nil {
		return nil, fmt.Errorf("can't access %s/%s.%s: %w", f.target.Kind, f.target.Name, f.api.Namespace, err)
	}
	return stream, nil
}

// listenTCP leads each connection to address to the port, until ctx ends.
func (f *forwarder) listenTCP(ctx context.Context, address string, p port) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("opening the local port: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			local, err := listener.Accept()
			if err != nil {
				if ctx.Err() == nil {
					f.say("error accepting connection: %v", err)
				}
				return
			}
			go f.serveTCP(ctx, local, p)
		}
	}()
	return nil
}

func (f *forwarder) serveTCP(ctx context.Context, local net.Conn, p port) {
	f.say("handling tcp connection for %d", p.local)
	stream, err := f.open(ctx, p)
	if err != nil {
		_ = local.Close()
		f.say("%v", err)
		return
	}
	if err := stream.Join(ctx, local); err != nil && !broken(err) {
		f.say("error handling connection for %d: %v", p.local, err)
	}
}

// broken says whether err tells no more than that one side has gone.
func broken(err error) bool {
	return errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "connection reset by peer")
}
