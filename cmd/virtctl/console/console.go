// Package console has the verb that connects the terminal to the serial console of a guest.
package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

const (
	// again is how long to wait before the next try to connect. The right to use a console comes
	// without one to watch the VMI, so trying is the way to learn that it runs.
	again = time.Second
	// steady is how long a session that was connected again must have lasted to be connected once
	// more. Somebody else may have taken the console, and it would go to and fro.
	steady = time.Minute
)

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
				vmi: args[0], wait: time.Duration(minutes) * time.Minute, steady: steady,
				in: cmd.InOrStdin(), out: cmd.OutOrStdout(), say: cmd.ErrOrStderr(),
				open: func(ctx context.Context) (*subresource.Stream, error) {
					return api.Stream(ctx, subresource.Instance(args[0]), "console", nil)
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
	vmi          string
	wait, steady time.Duration
	in           io.Reader
	out, say     io.Writer
	terminal     bool // in is one, and raw
	open         func(context.Context) (*subresource.Stream, error)
}

// run connects, until the user leaves or the session ends for good.
func (s *session) run(ctx context.Context) error {
	stream, err := s.connect(ctx, apierrors.IsBadRequest)
	if err != nil {
		return err
	}
	restore, err := s.raw()
	if err != nil {
		return err
	}
	defer restore()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	typed := read(ctx, s.in, leave)
	began := time.Time{} // when the session was connected again
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
		if !began.IsZero() && time.Since(began) < s.steady {
			return fmt.Errorf("disconnected from the console of %s again: %w", s.vmi, end)
		}
		s.tell("Connecting again...")
		stream, err = s.connect(ctx, passing)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		began = time.Now()
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

// connect opens the console, and tries again while the error is one to wait out.
func (s *session) connect(ctx context.Context, wait func(error) bool) (*subresource.Stream, error) {
	limit := time.NewTimer(s.wait)
	defer limit.Stop()
	for {
		stream, err := s.open(ctx)
		if err == nil || !wait(err) {
			return stream, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connecting to the console of %s: %w", s.vmi, ctx.Err())
		case <-limit.C:
			return nil, fmt.Errorf("timeout trying to connect to the virtual machine instance: %w", err)
		case <-time.After(again):
		}
	}
}

// passing says whether what kept a session from being connected again may pass: the VMI does not
// run yet, or a part of the way to it is away.
func passing(err error) bool {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled) // no answer
	}
	const serverErrors = 500
	return apierrors.IsBadRequest(err) || status.ErrStatus.Code >= serverErrors
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
		case <-time.After(again):
		}
	case end = <-output:
		close(stop)
	}
	_ = stream.Close()
	<-sent
	return end
}
