package guestfs

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
	"github.com/slipway-vm/slipway/cmd/virtctl/terminal"
)

// streams are the user's.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// attach leads the user's streams to those of the pod's program, until that ends.
func attach(ctx context.Context, cluster subresource.Cluster, pod *corev1.Pod, user streams) error {
	config, err := cluster.Config()
	if err != nil {
		return err //nolint:wrapcheck // it says what it was doing
	}
	base, err := url.Parse(config.Host)
	if err != nil {
		return fmt.Errorf("reading the API server's address: %w", err)
	}
	tty := pod.Spec.Containers[0].TTY
	address := base.JoinPath("api", "v1", "namespaces", pod.Namespace, "pods", pod.Name, "attach")
	address.RawQuery = url.Values{
		"container": {containerName}, "stdin": {"true"}, "stdout": {"true"},
		"stderr": {strconv.FormatBool(!tty)}, "tty": {strconv.FormatBool(tty)}, // a terminal has one output
	}.Encode()
	executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, address.String())
	if err != nil {
		return fmt.Errorf("preparing a connection to the API server: %w", err)
	}
	options := remotecommand.StreamOptions{Stdin: user.in, Stdout: user.out, Tty: tty}
	if !tty {
		options.Stderr = user.err
		return executor.StreamWithContext(ctx, options) //nolint:wrapcheck // who calls says what it was doing
	}
	width, height := terminal.Size(user.in)
	options.TerminalSizeQueue = &once{size: &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}} //nolint:gosec // no terminal is larger
	fmt.Fprintln(user.err, "If you don't see a command prompt, try pressing enter.")
	restore, err := terminal.Raw(user.in)
	if err != nil {
		return err
	}
	defer restore()
	return executor.StreamWithContext(ctx, options) //nolint:wrapcheck // as above
}

// once is a terminal whose size is told once.
type once struct{ size *remotecommand.TerminalSize }

// Next returns the size, and then nil: there is no other.
func (o *once) Next() *remotecommand.TerminalSize {
	size := o.size
	o.size = nil
	return size
}
