// Package vnc has the verbs for the screen of a guest: vnc, and vnc screenshot.
package vnc

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// connecting is how long it may take that the screen can be reached again.
const connecting = 5 * time.Minute

// options are the flags.
type options struct {
	address   string
	port      int
	proxyOnly bool
	viewer    viewer
	// start finds the viewer, and returns what runs it until it is closed.
	start func() (func(ctx context.Context, address string) error, error)
}

// NewCommand returns the group of verbs.
func NewCommand(cluster subresource.Cluster) *cobra.Command {
	o := &options{}
	o.start = func() (func(context.Context, string) error, error) { return o.viewer.find() }
	return o.command(cluster)
}

func (o *options) command(cluster subresource.Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:   "vnc VMI",
		Short: "Opens the screen of a VMI",
		Long: `Opens the screen of a VMI in a VNC viewer of this machine: remote-viewer or vncviewer, or TigerVNC, Chicken or
RealVNC on macOS.

With --proxy-only no viewer is started. The program prints {"port":PORT} and passes the first viewer that connects
there to the guest, until that leaves.

Where the connection to the guest breaks, the program says so and connects again. The viewer is started anew; one of your
own connects to the same port again.`,
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
	s := session{vmi: vmi, say: cmd.ErrOrStderr()}
	if !o.proxyOnly {
		o.address = "127.0.0.1"
		view, err := o.start()
		if err != nil {
			return err
		}
		s.view = view
	}
	api, err := subresource.Of(cluster)
	if err != nil {
		return err
	}
	s.connection = subresource.Connection{
		What: "the screen of " + vmi, Wait: connecting, Steady: subresource.Steady,
		Open: func(ctx context.Context) (*subresource.Stream, error) {
			return api.Stream(ctx, subresource.Instance(vmi), "vnc", nil)
		},
	}
	stream, err := s.connection.Open(ctx)
	if err != nil {
		return subresource.Failed("Can't access VMI "+vmi+": ", err)
	}
	defer func() { _ = stream.Close() }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.address, strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("listening for a viewer: %w", err)
	}
	s.listener = listener.(*net.TCPListener)
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	defer func() { _ = listener.Close() }()
	if o.proxyOnly {
		if err := printPort(cmd, listener.Addr().(*net.TCPAddr).Port); err != nil {
			return err
		}
	}
	return s.run(ctx, stream)
}

func printPort(cmd *cobra.Command, port int) error {
	data, err := json.Marshal(map[string]int{"port": port})
	if err != nil {
		return fmt.Errorf("encoding the port: %w", err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), string(data))
	return nil
}
