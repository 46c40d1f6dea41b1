// Package usbredir has the verb that plugs a USB device of this machine into a guest.
package usbredir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// program speaks to the device: it is of the project usbredir.
const program = "usbredirect"

// patience is how long the program has to connect after it was started.
const patience = time.Minute

// NewCommand returns the verb.
func NewCommand(cluster subresource.Cluster) *cobra.Command {
	var noLaunch bool
	command := &cobra.Command{
		Use:   "usbredir VENDOR:PRODUCT|BUS-DEVICE VMI",
		Short: "Plugs a USB device of this machine into a VMI",
		Long: `Plugs a USB device of this machine into a VMI whose spec has domain.devices.clientPassthrough, until the program is
ended. It runs usbredirect, which must be installed and may need to be run as root.

With --no-launch it prints the address at which it waits for a usbredir client of yours, for one device.`,
		Example: `  # The device that lsusb shows with the ID 0951:1666, in the VMI "web":
  virtctl usbredir 0951:1666 web

  # The one that lsusb shows as Bus 002 Device 003:
  virtctl usbredir 02-03 web

  # For a client of your own:
  virtctl usbredir web --no-launch`,
		Args: func(cmd *cobra.Command, args []string) error {
			if noLaunch {
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if noLaunch {
				return redirect(cmd, cluster, "", args[0])
			}
			if _, err := exec.LookPath(program); err != nil {
				return fmt.Errorf("Error on finding %s in $PATH: %w; install it (Debian: usbredirect), or use --no-launch", program, err) //nolint:staticcheck // the field's own words
			}
			return redirect(cmd, cluster, args[0], args[1])
		},
	}
	command.Flags().BoolVar(&noLaunch, "no-launch", false, "Run no program; print the address for a usbredir client.")
	return command
}

// redirect joins a slot of the VMI with the program for device, or with who else connects when that is "".
func redirect(cmd *cobra.Command, cluster subresource.Cluster, device, vmi string) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	api, err := subresource.Of(cluster)
	if err != nil {
		return err
	}
	stream, err := api.Stream(ctx, subresource.Instance(vmi), "usbredir", nil)
	if err != nil {
		return subresource.Failed("Can't access VMI "+vmi+": ", err)
	}
	defer func() { _ = stream.Close() }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for the usbredir client: %w", err)
	}
	defer func() { _ = listener.Close() }()
	ended := make(chan error, 2)
	if device == "" {
		fmt.Fprintf(cmd.OutOrStdout(), "User can connect usbredir client at: %s\n", listener.Addr())
	} else {
		go func() { ended <- run(ctx, device, listener.Addr().String()) }()
	}
	go func() { ended <- serve(ctx, listener, stream, device != "") }()
	return <-ended
}

// run runs the program until it ends, which it does when its connection does.
func run(ctx context.Context, device, address string) error {
	output, err := exec.CommandContext(ctx, program, "--device", device, "--to", address).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("running %s: %w: %s", program, err, bytes.TrimSpace(output))
}

// serve joins the first client that connects with the stream. Only one that was started here must come soon.
func serve(ctx context.Context, listener net.Listener, stream *subresource.Stream, soon bool) error {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	if limited, ok := listener.(*net.TCPListener); ok && soon {
		if err := limited.SetDeadline(time.Now().Add(patience)); err != nil {
			return fmt.Errorf("waiting for the usbredir client: %w", err)
		}
	}
	client, err := listener.Accept()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("waiting for the usbredir client: %w", err)
	}
	_ = listener.Close()
	err = stream.Join(ctx, client)
	if text, told := subresource.Farewell(err); told {
		return errors.New("disconnected from the VMI: " + text)
	}
	return err
}
