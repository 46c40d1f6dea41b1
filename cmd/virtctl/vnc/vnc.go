// Package vnc has the verbs for the screen of a guest: vnc, and vnc screenshot.
package vnc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// patience is how long a viewer that was started has to connect.
const patience = time.Minute

// options are the flags.
type options struct {
	address   string
	port      int
	proxyOnly bool
	viewer    viewer
}

// NewCommand returns the group of verbs.
func NewCommand(cluster subresource.Cluster) *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "vnc VMI",
		Short: "Opens the screen of a VMI",
		Long: `Opens the screen of a VMI in a VNC viewer of this machine: remote-viewer or vncviewer, or TigerVNC, Chicken or
RealVNC on macOS.

With --proxy-only no viewer is started. The program prints {"port":PORT} and passes the first viewer that connects
there to the guest, until that leaves.`,
		Example: `  # The screen of the VMI "web":
  virtctl vnc web

  # A port for a viewer of your own:
  virtctl vnc web --proxy-only --port 5900`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, cluster, args[0]) },
	}
	flags := command.Flags()
	flags.StringVar(&o.address, "address", "127.0.0.1", "Address to listen at with --proxy-only; 0.0.0.0 is every one of the machine.")
	flags.IntVar(&o.port, "port", 0, "Port to listen at; 0 is any that is free.")
	flags.BoolVar(&o.proxyOnly, "proxy-only", false, "Start no viewer; print the port for one.")
	flags.StringVar(&o.viewer.kind, "vnc-type", "", "Kind of the viewer at --vnc-path: tiger, chicken, real or remote-viewer.")
	flags.StringVar(&o.viewer.path, "vnc-path", "", "Program of the viewer. Goes with --vnc-type.")
	command.MarkFlagsRequiredTogether("vnc-type", "vnc-path")
	command.AddCommand(newScreenshotCommand(cluster))
	return command
}

func (o *options) run(cmd *cobra.Command, cluster subresource.Cluster, vmi string) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	view := func(context.Context, string) error { return nil }
	if !o.proxyOnly {
		o.address = "127.0.0.1"
		start, err := o.viewer.find()
		if err != nil {
			return err
		}
		view = start
	}
	api, err := subresource.Of(cluster)
	if err != nil {
		return err
	}
	stream, err := api.Stream(ctx, subresource.Instance(vmi), "vnc", nil)
	if err != nil {
		return subresource.Failed("Can't access VMI "+vmi+": ", err)
	}
	defer func() { _ = stream.Close() }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.address, strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("listening for a viewer: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if o.proxyOnly {
		if err := printPort(cmd, port); err != nil {
			return err
		}
	}
	served, viewed := make(chan error, 1), make(chan error, 1)
	go func() { served <- o.serve(ctx, listener, stream) }()
	if o.proxyOnly {
		return <-served
	}
	go func() { viewed <- view(ctx, net.JoinHostPort(o.address, strconv.Itoa(port))) }()
	select {
	case err := <-served:
		return err
	case err := <-viewed:
		return err
	}
}

func printPort(cmd *cobra.Command, port int) error {
	data, err := json.Marshal(map[string]int{"port": port})
	if err != nil {
		return fmt.Errorf("encoding the port: %w", err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), string(data))
	return nil
}

// serve passes the first viewer that connects to the stream.
func (o *options) serve(ctx context.Context, listener net.Listener, stream *subresource.Stream) error {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	if limited, ok := listener.(*net.TCPListener); ok && !o.proxyOnly {
		if err := limited.SetDeadline(time.Now().Add(patience)); err != nil {
			return fmt.Errorf("waiting for the viewer: %w", err)
		}
	}
	viewer, err := listener.Accept()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("waiting for the viewer: %w", err)
	}
	_ = listener.Close()
	err = stream.Join(ctx, viewer)
	if text, told := subresource.Farewell(err); told {
		return errors.New("disconnected from the screen: " + text)
	}
	return err
}
