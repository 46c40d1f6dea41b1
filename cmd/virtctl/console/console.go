// Package console has the verb that connects the terminal to the serial console of a guest.
package console

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
	"github.com/slipway-vm/slipway/cmd/virtctl/terminal"
)

// goodbye is how long the guest may take what was typed before the user left.
const goodbye = time.Second

// NewCommand returns the verb.
func NewCommand(cluster subresource.Cluster) *cobra.Command {
	var minutes int
	command := &cobra.Command{
		Use:   "console VMI",
		Short: "Connects to the serial console of a VMI",
		Long: `Connects the terminal to the serial console of a VMI. Ctrl+] leaves it. One session at a time has the console: a new
one ends the older.

Where the connection breaks, the program says so and connects again.`,
		Example: `  # The console of the VMI "web":
  virtctl console web

  # Wait a minute for it to run, not five:
  virtctl console web --timeout 1`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := subresource.Of(cluster)
			if err != nil {
				return err
			}
			s := session{
				vmi: args[0], in: cmd.InOrStdin(), out: cmd.OutOrStdout(), say: cmd.ErrOrStderr(),
				connection: subresource.Connection{
					What: "the console of " + args[0], Wait: time.Duration(minutes) * time.Minute, Steady: subresource.Steady,
					Open: func(ctx context.Context) (*subresource.Stream, error) {
						return api.Stream(ctx, subresource.Instance(args[0]), "console", nil)
					},
				},
			}
			return s.run(cmd.Context())
		},
	}
	command.Flags().IntVar(&minutes, "timeout", 5, "Minutes to wait for the VMI to run.")
	return command
}

// session is a user at a console.
type session struct {
	vmi        string
	in         io.Reader
	out, say   io.Writer
	terminal   bool // in is one, and raw
	connection subresource.Connection
}

// run connects, until the user leaves or the session ends for good.
func (s *session) run(ctx context.Context) error {
	stream, err := s.connection.Connect(ctx, apierrors.IsBadRequest)
	if err != nil {
		return err
	}
	restore, err := terminal.Raw(s.in)
	if err != nil {
		_ = stream.Close()
		return err
	}
	defer restore()
	s.terminal = terminal.Is(s.in)
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	typed := read(ctx, s.in, leave)
	for {
		s.tell("Successfully connected to %s console. Press Ctrl+] or Ctrl+5 to exit console.", s.vmi)
		end := s.attach(ctx, stream, typed)
		text, told := subresource.Farewell(end)
		switch {
		case ctx.Err() != nil:
			return nil
		case end == nil:
			s.tell("\nThe console of %s was closed.", s.vmi)
			return nil
		case told:
			return fmt.Errorf("disconnected from the console of %s: %s", s.vmi, text)
		}
		s.tell("\nYou were disconnected from the console. This could be caused by one of the following:" +
			"\n - the target VM was powered off\n - another user connected to the console of the target VM\n - network issues")
		stream, err = s.connection.Reconnect(ctx, end, s.tell)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// tell prints lines. On a raw terminal each needs its carriage return.
func (s *session) tell(format string, args ...any) {
	text := fmt.Sprintf(format+"\n", args...)
	if s.terminal {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	fmt.Fprint(s.say, text)
}

// attach passes bytes to and fro until ctx ends, as it does when the user leaves, or the stream does. It
// returns how the stream ended: nil where the other side closed the console as over.
func (s *session) attach(ctx context.Context, stream *subresource.Stream, typed <-chan []byte) error {
	output := make(chan error, 1)
	go func() {
		_, err := io.Copy(s.out, stream)
		output <- err
	}()
	stop, sent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		send(stream, typed, stop)
	}()
	var end error
	select {
	case <-ctx.Done():
		close(stop)
		select { // what was typed before is sent, if the guest takes it
		case <-sent:
		case <-time.After(goodbye):
		}
	case end = <-output:
		close(stop)
	}
	_ = stream.Close()
	<-sent
	return end
}
